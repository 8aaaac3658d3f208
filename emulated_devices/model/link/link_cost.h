/* link_cost.h -- what the lists of a part send on the tp group.  bench/schemes/tensor_predict.c, model/stage.c and
 * verify/cases/layer.c call these functions.  No function returns an error code. */
#ifndef ORRERY_LINK_COST_H
#define ORRERY_LINK_COST_H

#include "emulated_devices/model/link/link.h"

/** Return what this device sends and adds on the tp group for all lists of a part, one microbatch of N tokens,
 * exactly. */
struct account linked_cost(const struct linked *, const struct seams *, int64_t N);

/** Do the same on the cp group: what attention sends, and what brings streams together. */
struct account linked_attention_cost(const struct linked *, const struct context_parallel *, int64_t N);

/**
 * The predicted time of these collectives, one after the other, on the cluster of the device's clock: with their
 * additions, without other computing.  Exact to the picosecond for 1d, 1d-sp, 1d-sp-keep and 3d if all dimensions
 * divide evenly, all links are equal and the rates divide the bytes.  Too high for a scheme that overlaps them with
 * computing.
 */
picoseconds linked_time(const struct linked *, const struct seams *, int64_t N);

/** Do the same for one block, without recomputation.  @return zeros for a model for which devices have no program. */
struct traffic block_cost(const struct tensor_parallel *, int64_t N);
picoseconds block_time(const struct tensor_parallel *, int64_t N);

#endif
