/* batch_plan.h -- how many sequences each microbatch of each copy has, step by step.
 *
 * Without a batch plan, every step has the same batch, cut as evenly as possible.  With one, copies along dp may differ
 * in their numbers of sequences and of microbatches, and both may change from step to step.  The sequences of a step
 * are ordered by copy, then by microbatch.  All copies make the same number of passes: the largest number of
 * microbatches of any copy in any step.  Missing microbatches are empty, so that each message about shared weights and
 * gradients has its counterpart.
 *
 * A file:
 *
 *     orrery batches 1
 *     # one line a step: copy | copy | ..., each the sequences of its microbatches; -: none
 *     2 1 | 3
 *     -   | 1 0 1
 *
 * After the last step, the first one is used again.
 *
 * run/words/take.c loads a file; verify/cases/space.c makes plans of numbers; plan.c and the trainer ask.
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
    struct sha256_text digest;          /* of the numbers; comments in the file do not change it */
};

/**
 * Read a plan.  Local.
 * @param file  the file's name, for messages.
 * @return OK, for batch_plan_free; ERR_FORMAT: the message begins with FILE:LINE and says what was expected there;
 *         ERR_FILE; ERR_MEMORY.  On failure nothing is left to free.
 */
enum error_code batch_plan_read(struct batch_plan *, FILE *from, const char *file, struct error *);

/** Read a plan from the file at this path.  Local.  @return as batch_plan_read. */
enum error_code batch_plan_load(struct batch_plan *, const char *path, struct error *);

/** Make a plan from an array of numbers.  Local.
 *  @param sequences  [steps][copies][micros], allocated; the plan owns it from now on, also after an error.
 *  @return OK, or ERR_PLAN: a step without sequences. */
enum error_code batch_plan_make(struct batch_plan *, int steps, int copies, int micros, int *sequences, struct error *);
void batch_plan_free(struct batch_plan *);

/** The sequences of one microbatch, as indices into the whole batch of the step.  Pure.
 *  @param step  from 0, without an upper limit. */
struct interval batch_plan_at(const struct batch_plan *, int64_t step, int copy, int micro);

/** How many sequences a step has.  Pure. */
int64_t batch_plan_total(const struct batch_plan *, int64_t step);

/** Check that all devices have read the same plan.  Collective over all devices.
 *  @return OK, or on every device ERR_PLAN, naming a device that has read another one. */
enum error_code batch_plan_agree(const struct batch_plan *, struct comm *, struct error *);

#endif
