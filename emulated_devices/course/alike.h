/* alike.h -- whether the members of a group call a collective operation alike, in words of course.h.
 * serve_requests.c calls collectives_alike for each collective operation; trial.c names the call of a device that
 * waits.  Texts are cut to their room, and nothing can fail. */
#ifndef ORRERY_COURSE_ALIKE_H
#define ORRERY_COURSE_ALIKE_H

#include "emulated_devices/course/trial.h"

/** "all_reduce of 12 numbers", "broadcast of 12 numbers from member 1". */
void collective_text(const struct asked_collective *, char *to, size_t size);

/**
 * Compare what the members of a group have asked for.  All wait in a collective operation of this group.
 * @param member  the devices of the group, in the order of their numbers in it.
 * @return false: they differ; `why` says who asks for what, and what they must have in common.
 */
bool collectives_alike(const struct trial *, const int *member, int size, char *why, size_t bytes);

#endif
