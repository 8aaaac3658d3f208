/* dispatch.h -- what all schemes that move rows share: they differ in the hops.
 *
 *     announce   each device tells the others what it will send; the scheme plans its hops; choices are sorted by
 *                expert
 *     forward    rows to their experts (hops.h), sorted by expert; the experts; results back
 *     input      the same for the gradients of results, and back for those of rows
 *
 * Two forms.  A row a choice: k copies of each row are sorted by expert and sent, and the k results are weighted and
 * added at home, in the order of experts, as on one device.  weighs_there: a row is sent as it is, with its weights;
 * each device adds the weighted results of its own experts, and the way back adds these sums.
 *
 * Rows of an expert are computed in the order of the pool: with neighbours in the order of their tokens this is the
 * order of one device.
 *
 * Memory  kept: R rows of the experts' input, up and act.  A row a choice: k n results and their order.  weighs_there:
 *         R results, and the weights of all rows that came
 * Called  Files of schemes/experts/ call these functions.
 *
 * model/run/run_mixture.c calls the passes of a scheme, which are these functions for all schemes but here.c.
 * Errors are ERR_MEMORY and ERR_COMM, after which the step cannot go on.
 */
#ifndef ORRERY_EXPERT_DISPATCH_H
#define ORRERY_EXPERT_DISPATCH_H

#include "emulated_devices/schemes/experts/hops.h"

/** Choices of a member's rows for an expert; of these, those that go to another member. */
int64_t dispatch_told(const struct expert_parallel *, const struct expert_routing *, int64_t expert, int from);
int64_t dispatch_expert_rows(const struct expert_parallel *, const struct expert_routing *, int64_t expert, int from,
                             int to);

/** Choices of a member's rows for the experts of another, from the table of choices of each expert. */
int64_t dispatch_rows(const struct expert_parallel *, const struct expert_routing *, int from, int to);

/** List blocks of rows that lie as [a][b] in the order [b][a].
 *  @param length  [a, b] rows of each block.  @param[out] order  room for all rows. */
void dispatch_transpose(const int64_t length[], int a, int b, int32_t *order);

/* For struct expert_scheme.  dispatch_hop: one all-to-all of a row a choice, for schemes with no other hop. */
enum error_code dispatch_hop(const struct expert_parallel *, const struct expert_routing *, const struct choices *,
                             int index, struct expert_hop *, struct error *);
enum error_code dispatch_announce(struct expert_routing *, const struct expert_parallel *, const struct choices *own,
                                  struct error *);
struct tensor dispatch_kept(const struct expert_parallel *, int slot, int64_t rows);
struct tensor dispatch_left(const struct expert_parallel *, int slot, int64_t rows);
enum error_code dispatch_forward(struct mixture_call *, struct error *);
enum error_code dispatch_input(struct mixture_call *, struct error *);
enum error_code dispatch_weight(struct mixture_call *, struct error *);
void dispatch_announce_cost(struct forecast *, const struct expert_parallel *);
void dispatch_cost(struct forecast *, const struct expert_parallel *, enum tensor_pass);

/* Its entries of every scheme that moves rows; of those that keep nothing else. */
#define DISPATCH_PASSES                                                                                              \
    .cuts_experts = true, .announce = dispatch_announce, .gradient_slots = 2, .left = dispatch_left,                 \
    .forward = dispatch_forward, .input = dispatch_input, .weight = dispatch_weight,                                 \
    .announce_cost = dispatch_announce_cost, .cost = dispatch_cost
#define DISPATCH_SCHEME DISPATCH_PASSES, .slots = 6, .kept = dispatch_kept

#endif
