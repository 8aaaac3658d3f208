/* outward.h -- the outer step of replicas that train apart, as devices make it; on memory of the host.
 *
 * schemes/data/ reach these functions through device_outward_way and device_outward_step (generic.c).  No function
 * here can fail.
 */
#ifndef ORRERY_OUTWARD_H
#define ORRERY_OUTWARD_H

#include "ref/numeric/tensor.h"

/* This holds what an outer step does to an element, of which d is the mean of the replicas' ways, anchor - theta:
 *     momentum = keep momentum + take d;    anchor = anchor - (by_way d + by_momentum momentum) */
struct outward { double keep, take, by_way, by_momentum; };

/** way = anchor - theta, of any part of a tensor.  Local; all in one format, fp32 or fp64, and of one size. */
void outward_way(struct tensor way, struct tensor anchor, struct tensor theta);

/**
 * Step anchor and momentum by the sum of all replicas' ways, and set theta to the anchor.
 * Local; any part of a tensor, all in one format, fp32 or fp64, and of one size.
 * @param momentum  tensor_none where the rule has none.
 */
void outward_step(struct tensor theta, struct tensor anchor, struct tensor momentum, struct tensor sum, int replicas,
                  struct outward);

#endif
