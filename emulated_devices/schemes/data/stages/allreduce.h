/* allreduce.h -- the front of the block of gradients, reduced bucket by bucket.  Private to this folder. */
#ifndef ORRERY_DATA_ALLREDUCE_H
#define ORRERY_DATA_ALLREDUCE_H

#include "emulated_devices/schemes/data/stages/bucket.h"

/* A step reduces `elements` at the front of the block; `ready` of these can be sent, `reduced` have been.  `packed`
 * means that units are not at their places. */
struct front { int64_t elements, ready, reduced; bool packed; };

/* Reduce every bucket that is ready, on the current stream.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code reduce_front(struct data_parallel *, struct front *, struct error *);

/* The cost of reducing a front of n elements. */
struct account front_cost(const struct data_parallel *, int64_t n, bool packed);

/* The number of elements at the front of the block to which all passes have added: last unit first. */
int64_t finished_elements(const struct data_parallel *);

/* The .cost of stages that reduce the whole block. */
void allreduce_cost_of_step(const struct data_parallel *, enum shard_level, struct account *sum);

#endif
