/* allreduce.h -- the front of the block of gradients, reduced bucket by bucket.  Private to this folder.
 *
 * allreduce.c and low_rank.c call these functions, each from its stage.  A stage is a part of the data-parallel engine
 * that does one thing with weights, gradients or states (stage.h).  The block has the gradients of all units, the last
 * unit first, because backward finishes this unit first.  A unit has parameters that are reduced and stepped together
 * (unit.h).
 */
#ifndef ORRERY_DATA_ALLREDUCE_H
#define ORRERY_DATA_ALLREDUCE_H

#include "emulated_devices/schemes/data/stages/bucket.h"

/* A step reduces `elements` at the front of the block; `ready` of these can be sent, `reduced` have been.  `packed`
 * means that projected gradients, which are smaller, lie one after another, and so not at their units' places. */
struct front { int64_t elements, ready, reduced; bool packed; };

/* Reduce every bucket that is ready, on the current stream.  Collective over the devices that share the gradients.
 * @return OK, ERR_MEMORY or ERR_COMM; after an error front->reduced counts the failed bucket, too. */
enum error_code reduce_front(struct data_parallel *, struct front *, struct error *);

/* The cost of reducing a front of n elements. */
struct account front_cost(const struct data_parallel *, int64_t n, bool packed);

/* The number of elements at the front of the block to which all passes have added: last unit first. */
int64_t finished_elements(const struct data_parallel *);

/* The .cost of stages that reduce the whole block. */
void allreduce_cost_of_step(const struct data_parallel *, enum shard_level, struct account *sum);

#endif
