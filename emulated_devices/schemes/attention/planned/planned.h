/* planned.h -- attention that follows the plan of a microbatch: what schemes that plan share; they differ in the plan.
 *
 * Forward, on each device, division by division:
 *     launch    send the blocks that the plan moves, begin to receive those that are moved here
 *     attend    the division's work: attention of a block's queries with a block's keys; a block's results are merged
 *     wait      for the moved blocks
 * then send the results of other devices' queries home, and merge those that come.
 *
 * Backward is the same, with what the queries need (themselves, the gradient of the output, log-sum-exp, delta);
 * gradients of other devices' queries and keys go home at the end.
 *
 * If rows lie otherwise outside attention (remap.h), they come first, and go back last; backward queries, keys, values
 * and the output come a second time, instead of being kept.  With proxies (proxies.h) what goes to another node is
 * dispatched before the division's work and combined after it; gradients are added when all have come, in the same
 * order.  Results of other devices' queries go straight.
 *
 * Sends     a block of n tokens, elements: keys 2 n K A; queries n H A, backward 2 n H A and 2 n H wide ones; results
 *           n H A and n H wide ones; gradients 2 n K A, n H A wide ones.  For a remapped token: forward (2 H + 2 K) A,
 *           backward (4 H + 4 K) A
 *           With exact sums keys travel once around a ring of all devices before (tops.h); queries take n H tops along,
 *           results are n H A and n H EXACT sums, gradients EXACT sums
 * Memory    kept: the log-sum-exp.  In a pass: every block that was moved here; the call's tensors again if they are
 *           remapped; with proxies what is carried for others, and all gradients that come
 * Order     results of this device by division, query, key; then those of others by device; gradients likewise, in the
 *           wide format
 *
 * hdp.c, dcp.c and zeppelin.c are schemes of these functions; model/run/run_attention.c calls the passes.  A pass
 * reports ERR_MEMORY or ERR_COMM, after which the step cannot go on.
 */
#ifndef ORRERY_ATTENTION_PLANNED_H
#define ORRERY_ATTENTION_PLANNED_H

#include "emulated_devices/schemes/attention/pass.h"

/** For the members of an attention scheme.  Collective over the cp group, as there. */
enum error_code planned_forward(struct attention_call *, struct error *);
enum error_code planned_backward_input(struct attention_call *, struct error *);
void planned_cost(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t rows);
struct tensor planned_kept(const struct context_parallel *, int slot, int64_t rows);
const char *planned_refuses(const struct context_parallel *, const struct model_config *);

/* These entries follow from the way in which the plan is run. */
#define PLANNED_SCHEME                                                                                               \
    .exact = true, .refuses = planned_refuses, .slots = 1, .kept = planned_kept, .reads_input = true,               \
    .reads_output = true,                                                                                            \
    .forward = planned_forward, .backward_input = planned_backward_input, .cost = planned_cost

#endif
