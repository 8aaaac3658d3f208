/* calls.h -- how the checks call a student's functions.  A lesson's calls.c has a line for each function:
 *
 *     static void call_sum(struct call *c) { c->real = sum(c->buffer[0], c->number[0]); }
 *     const struct callable callables[] = { { "sum", call_sum }, { 0 } };
 *
 * It is compiled into the student's process, and knows nothing that a student should not.  calls.c of each lesson
 * includes this file; worker.c looks up a function by its name.  No function returns an error code.
 */
#ifndef COURSE_CALLS_H
#define COURSE_CALLS_H

#include "course.h"

enum { CALL_BUFFERS = 12, CALL_NUMBERS = 12, CALL_GROUPS = 8 };

/* The arguments of one call, as the check has set them (emulated_devices/course/trial.h), and its results. */
struct call {
    struct group group[CALL_GROUPS];            /* [0]: all devices */
    void *buffer[CALL_BUFFERS];
    uint64_t bytes[CALL_BUFFERS];
    int64_t number[CALL_NUMBERS];
    double given[CALL_NUMBERS];                 /* numbers that are not whole */
    int64_t result;
    double real;
};

struct callable {
    const char *name;
    void (*run)(struct call *);
};

extern const struct callable callables[];       /* ends with an empty one */

#endif
