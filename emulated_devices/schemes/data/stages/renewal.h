/* renewal.h -- new weights of a bucket of units, sent to all that keep them.  Private to this folder.
 * renewal.c sends them after the step, late.c in the next step before their first use.  Both call these functions. */
#ifndef ORRERY_RENEWAL_H
#define ORRERY_RENEWAL_H

#include "emulated_devices/schemes/data/stages/bucket.h"

/** Gather the weights of all units in the bucket, and empty the bucket.  Collective over the levels of optimizer and
 *  gradients.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code renewal_send(struct data_parallel *, struct bucket *, struct error *);

/** Add to sum what the bucket's all-gather on a level costs, and empty the bucket. */
void renewal_add(const struct data_parallel *, struct bucket *, enum shard_level, struct account *sum);

#endif
