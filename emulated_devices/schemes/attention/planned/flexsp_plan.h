/* flexsp_plan.h -- cut devices into groups, and put each sample of a microbatch into one: FlexSP's groups.
 *
 * Source   FlexSP, arXiv:2412.01523, section 4: bucketed lengths, then an integer program over numbers of samples of
 *          each bucket in each group
 *
 * Of all ways to cut the devices into neighbours of 1, 2, 4, .., and to put samples into them, one with the least time
 * of the slowest group.  The time of a group of d devices
 *     (pairs of tokens * per_pair + tokens (per_token + elements exchanged for a token * per_element)) / d
 * where what goes to another node costs per_far_element.  Up to 16 devices all cuts are tried.  More devices have too
 * many cuts: from the best cut into equal groups on, groups are halved or joined while that helps.
 * Lengths are bucketed (buckets.h), and samples of a bucket are alike, so that only their number in each group matters.
 * Branch and bound over these numbers ends with the best, or after 20000 steps with the best so far; it begins with the
 * longest sample first, into the group that then ends earliest.  Plans are compared by the true lengths.  With at most
 * as many different lengths as buckets these add nothing.  No device gets more tokens than it has room for (load.room);
 * where that is not known, no more than twice the mean, if such a plan is found.
 *
 * flexsp_micros.c asks for the time of every microbatch that a step might have, and flexsp.c for the plan of those that
 * it gets, on every device alike.  Errors are ERR_MEMORY, and ERR_PLAN from the check of the finished plan.
 */
#ifndef ORRERY_ATTENTION_FLEXSP_PLAN_H
#define ORRERY_ATTENTION_FLEXSP_PLAN_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"

/** The operations that each device of the slowest group has in a layer's forward pass, with the best groups.  Pure.
 *  @param sample     [samples] of the load, the longest first: those of a microbatch.
 *  @param buckets    of lengths, at least 1; the scheme has USUAL_BUCKETS.
 *  @param[out] time  infinite: no groups have room for the samples.
 *  @return OK or ERR_MEMORY. */
enum error_code flexsp_plan_time(const struct context_load *, const struct interval sample[], int samples, int buckets,
                                 double *time, struct error *);

/** The plan of a microbatch with groups for some of a load's samples, which have room.  Pure.
 *  @param sample  likewise.  @return as context_plan_finish. */
enum error_code flexsp_plan(struct context_plan *, const struct context_load *, const struct interval sample[],
                            int samples, int buckets, struct error *);

#endif
