/* progress.h -- the numbers of a job that are no parameter's, as two tensors of fp64.
 *
 * Every number is a whole number below 2^52 or is fp64 itself, so fp64 keeps all bits.  The data's position and all
 * random numbers follow from the steps done and the seed, which is the plan's: batches, dropout and directions are
 * drawn by step and place (ref/numeric/), not by devices.
 *
 * collection.c and transfer.c call these functions.  No function returns an error code.
 */
#ifndef ORRERY_PROGRESS_H
#define ORRERY_PROGRESS_H

#include "emulated_devices/model/trainer.h"

enum { PROGRESS_NUMBERS = 8 };          /* steps done; skipped; the loss scale and its counters */

/** How many correction biases the routers of a model have; 0: none. */
int64_t progress_biases(const struct model_config *);

/** The job's numbers of a trainer, and back. */
void progress_take(const struct trainer *, double number[PROGRESS_NUMBERS]);
void progress_put(struct trainer *, const double number[PROGRESS_NUMBERS]);

#endif
