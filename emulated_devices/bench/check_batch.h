/* check_batch.h -- a golden file whose batch is another file's, several times over: a large one without a large run.
 * check_speed.c calls check_batch_* for `orrery bench check --repeat`. */
#ifndef ORRERY_BENCH_CHECK_BATCH_H
#define ORRERY_BENCH_CHECK_BATCH_H

#include "ref/error.h"

/**
 * Write the golden file of a batch that is the batch of `from`, `times` times over, with bounds and hashes.
 *
 * Rows of activations repeat.  The loss stays, being a mean, so gradients of activations are divided, and those of
 * weights and all that follows from them stay.  One tensor of `from` is in memory at a time.
 * @param from  the path of a file of one step, with hashes beside it.  @param path  of the new file.
 * @return OK; ERR_USAGE if a tensor's rows are not the batch's tokens, as in a mixture; ERR_FILE; ERR_FORMAT;
 *         ERR_MEMORY.
 */
enum error_code golden_repeat(const char *from, const char *path, int times, struct error *);

#endif
