/* findings.h -- what `orrery plan` says of a plan, for checks of lessons: devices, memory, messages, virtual time.
 * The checks of lessons 17 and 18 call it with the JSON that command.h has brought.  A number that the report lacks
 * is 0.  tutorials/17_plan/check.c and tutorials/18_capstone/check.c call these functions.  No function returns an
 * error code. */
#ifndef ORRERY_COURSE_FINDINGS_H
#define ORRERY_COURSE_FINDINGS_H

#include "emulated_devices/course/command.h"

enum { FINDINGS_KINDS = 5, FINDINGS_LINKS = 4 };

struct findings {
    int64_t devices;                    /* of the plan */
    int64_t peak;                       /* bytes of the device that needs most */
    int64_t of[FINDINGS_KINDS];         /* weights, gradients, optimizer, activations, buffers on it: bytes */
    int64_t sent[FINDINGS_LINKS];       /* tensor, attention, data, pipeline by it: bytes */
    int64_t step;                       /* virtual time of a step: picoseconds */
    int64_t computing;                  /* of it, on average over the devices: computing */
    int64_t waiting[FINDINGS_LINKS];    /* and waiting for messages of a kind that nothing hides */
};

/** Read them from the JSON of a plan's report, or of a run's; what is missing is 0. */
struct findings findings_read(const cJSON *report);

/** Write into the check's drawing where memory and time of the fullest device go. */
void findings_explain(struct judge *, const struct findings *);

#endif
