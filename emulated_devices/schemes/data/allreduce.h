/* allreduce.h -- the front of the block of gradients, reduced bucket by bucket.  Private to this folder. */
#ifndef ORRERY_DATA_ALLREDUCE_H
#define ORRERY_DATA_ALLREDUCE_H

#include "emulated_devices/schemes/data/bucket.h"

/* What a step reduces of the block, and what of it has been reduced, or is ready to be.  packed:
 * units do not lie in their places. */
struct front { int64_t elements, ready, reduced; bool packed; };

/* Every bucket that is ready, or the last one; on the stream that is current.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code reduce_front(struct data_parallel *, struct front *, struct error *);

/* What reducing a front of n elements costs. */
struct account front_cost(const struct data_parallel *, int64_t n, bool packed);

/* Elements at the front of the block to which every pass has added: last unit first. */
int64_t finished_elements(const struct data_parallel *);

/* For .cost, of stages that reduce the whole block. */
void allreduce_cost_of_step(const struct data_parallel *, enum shard_level, struct account *sum);

#endif
