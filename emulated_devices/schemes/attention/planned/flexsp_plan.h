/* flexsp_plan.h -- cut devices into groups, and put each sample of a microbatch into one: the planner of flexsp.
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
 * as many different lengths as buckets these add nothing.  No device gets more than twice the mean number of tokens, if
 * such a plan is found.
 *
 * flexsp.c calls the planner for each microbatch, on every device alike.  It reports ERR_MEMORY, or ERR_PLAN from the
 * check of the finished plan.
 */
#ifndef ORRERY_ATTENTION_FLEXSP_PLAN_H
#define ORRERY_ATTENTION_FLEXSP_PLAN_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"

/** A plan with groups, made with at most so many buckets; the scheme has USUAL_BUCKETS.  Pure.
 *  @return as context_plan_finish. */
enum error_code flexsp_plan(struct context_plan *, const struct context_load *, int buckets, struct error *);

#endif
