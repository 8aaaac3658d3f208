/* source.h -- what a student's text may have in it, before it is compiled.  Private to this folder. */
#ifndef ORRERY_COURSE_SOURCE_H
#define ORRERY_COURSE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Look at a text: it may include course.h, its contract and a few headers of C, so that the compiler reads no other
 * file; and it has no assembly, which could talk to the devices behind course.h.  object.h looks at what came out.
 * @param contract  "ring.h".
 * @param[out] why  one line, with the line's number.
 */
bool source_is_fine(const char *text, const char *contract, char *why, size_t size);

#endif
