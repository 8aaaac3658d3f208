/* remap.h -- tokens lie otherwise in attention than outside it, where every device has as many.
 *
 * Source   Zeppelin, arXiv:2509.21841, the remapping layer: attention's work grows with the square of a length, that of
 *          other layers with the length, so a layout that balances one does not balance the other
 * Sends    the fewest tokens, sum over devices of max(0, tokens - mean): a device with more than the mean sends only
 *          these; and of those the fewest between nodes, because devices of its node get them first
 * Equals   permutes rows
 * Errors   none
 *
 *     in attention      0: a a a a a     1: b b c       the mean is 4
 *     outside           0: a a a a       1: a b b c     one token is moved, and back
 *
 * zeppelin.c balances a plan by it before it finishes the plan; planned_pass.c moves the runs, planned_cost.c counts
 * them.
 */
#ifndef ORRERY_ATTENTION_REMAP_H
#define ORRERY_ATTENTION_REMAP_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"

/* The parts of zeppelin that a plan may leave out; load.without has a bit for each. */
enum zeppelin_part { REMAP, ROUTING, NODES };

/** Give a plan, which is not finished, the rows outside attention.  If attention's are balanced it gets none.  Pure.
 *  @param node  devices of a node.  @return false without memory. */
bool remap_balance(struct context_plan *, int node);

/* Adjacent rows of a device outside attention that are adjacent on one in attention. */
struct remap_run { int outside, inside; int64_t row_outside, row_inside, count; };

/** Call f for each run, in one order on all devices; of a sorted plan. */
void remap_each(const struct context_plan *, void (*f)(void *context, const struct remap_run *), void *context);

/** Call f for each run that begins or ends on a device, in the same order; of a finished plan. */
void remap_each_of(const struct context_plan *, int device, void (*f)(void *context, const struct remap_run *),
                   void *context);

#endif
