/* batch_plan.h -- how many sequences each microbatch of each copy has, step by step.
 *
 * Without one, every step has the same batch, cut as evenly as it goes.  With one, copies along dp may have other sizes
 * and other numbers of microbatches than each other, and other ones in the next step.  The sequences of a step lie in
 * the order of copies, and of microbatches in each.  All copies make as many passes as the one with the most
 * microbatches of all steps: those that they do not have are empty, so that the messages of shared weights and
 * gradients meet.
 *
 * A file:
 *
 *     orrery batches 1
 *     # one line a step: copy | copy | ..., each the sequences of its microbatches; -: none
 *     2 1 | 3
 *     -   | 1 0 1
 *
 * Behind the last step the first comes again.
 */
#ifndef ORRERY_BATCH_PLAN_H
#define ORRERY_BATCH_PLAN_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/interval.h"
#include "ref/io/sha256.h"
#include <stdio.h>

struct batch_plan {
    int steps, copies, micros;          /* micros: the most of any copy in any step */
    int64_t most;                       /* sequences of the largest step */
    int *sequences;                     /* [steps][copies][micros] */
    struct sha256_text digest;          /* of the numbers, not of the file's words and comments */
};

/**
 * Read a plan.  Local.
 * @param file  the file's name, for messages.
 * @return OK, for batch_plan_free; ERR_FORMAT: the message begins with FILE:LINE and says what was expected there;
 *     ERR_FILE;
 *         ERR_MEMORY.  On failure nothing is left to free.
 */
enum error_code batch_plan_read(struct batch_plan *, FILE *from, const char *file, struct error *);

/** The same from a file by name.  Local.  @return as batch_plan_read. */
enum error_code batch_plan_load(struct batch_plan *, const char *path, struct error *);

/** Make a plan of numbers that were counted elsewhere.  Local.
 *  @param sequences  [steps][copies][micros], allocated; the plan's from here on, also after an error.
 *  @return OK, or ERR_PLAN: a step without sequences. */
enum error_code batch_plan_make(struct batch_plan *, int steps, int copies, int micros, int *sequences, struct error *);
void batch_plan_free(struct batch_plan *);

/** The sequences of one microbatch, numbered through the whole batch of a step.  Pure.  @param step  any, from 0. */
struct interval batch_plan_at(const struct batch_plan *, int64_t step, int copy, int micro);

/** How many sequences a step has.  Pure. */
int64_t batch_plan_total(const struct batch_plan *, int64_t step);

/** Whether all devices have read the same plan.  Collective over all devices.
 *  @return OK, or on every device ERR_PLAN, naming a device that has not. */
enum error_code batch_plan_agree(const struct batch_plan *, struct comm *, struct error *);

#endif
