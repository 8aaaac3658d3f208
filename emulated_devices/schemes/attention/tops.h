/* tops.h -- with exact sums: every device sees all keys once, before any sum, for the largest score of each query.
 *
 * exp(score - top) rounds, so the sums of ref/exact/attention.c have one device's bits only with the top over all keys
 * of a query.  A maximum does not depend on the order, so keys travel around one ring of all members.
 *
 * Callers: blocks.c and planned/planned.c.  In ordinary arithmetic nothing is sent.
 */
#ifndef ORRERY_ATTENTION_TOPS_H
#define ORRERY_ATTENTION_TOPS_H

#include "emulated_devices/schemes/attention/pass.h"

/** Use the keys [n, K A] of a member, which are columns of `keys` from `first` on. */
typedef void tops_visit(struct cp_pass *, void *context, struct tensor keys, int64_t first, int owner);

/**
 * Visit the keys of all members, this device's own first; each device sends P - 1 messages of n K A elements.
 * Collective over the cp group.
 * @param qkv  has this device's own keys in front of its last K A columns.
 * @return OK, or ERR_MEMORY before anything is sent.
 */
enum error_code tops_travel(struct cp_pass *, struct tensor qkv, tops_visit *, void *context, struct error *);

/** Enter what tops_travel sends in a pass: nothing but forward and with exact sums. */
void tops_cost(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t B);

#endif
