/* link_cost.h -- what the lists of a part send on the tp group. */
#ifndef ORRERY_LINK_COST_H
#define ORRERY_LINK_COST_H

#include "emulated_devices/model/link.h"

/** What this device sends and adds on the tp group for all lists of a part, one microbatch of N tokens, exactly. */
struct account linked_cost(const struct linked *, const struct tensor_parallel *, int64_t N);

/** The same on the cp group: what attention sends. */
struct account linked_attention_cost(const struct linked *, const struct context_parallel *, int64_t N);

/**
 * The time that these collectives are predicted to take one after the other on the cluster of the device's clock, with
 * what they add, and without any other computing: what 1d, 1d-sp, 1d-sp-keep and 3d take to the picosecond where
 * everything divides, the links between all devices are alike and rates divide their bytes; more than a scheme takes
 * that does other things meanwhile.
 */
picoseconds linked_time(const struct linked *, const struct tensor_parallel *, int64_t N);

/** The same of one block, without recomputation.  @return zeros for a model that devices have no program for. */
struct traffic block_cost(const struct tensor_parallel *, int64_t N);
picoseconds block_time(const struct tensor_parallel *, int64_t N);

#endif
