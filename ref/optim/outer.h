/* outer.h -- replicas of a model that train separately, and the outer step that combines them: the serial rule.
 *
 * Each replica takes `every` steps of its own optimizer on its own sequences, without reducing gradients.  Then the
 * mean over the replicas of what they have moved from the common weights (the anchor) is a gradient that steps these:
 *
 *     g      = mean of anchor - theta(r) over the replicas r
 *     m      = momentum m + g                             initially zero; not stored with momentum 0
 *     anchor = anchor - lr (g + momentum m)               Nesterov's; with momentum 0: - lr g
 *     theta(r) = anchor                                   all replicas start the next round from the anchor
 *
 * With lr 1 and momentum 0 the anchor is the mean of the replicas: local SGD.  The inner optimizers keep their states.
 *
 * This is what golden files hold and what devices are compared with.  Devices do not call it: they have their own
 * (emulated_devices/schemes/data/outward.c), so that a mistake in either is seen.
 *
 * Source  S. U. Stich, "Local SGD converges fast and communicates little", arXiv:1805.09767, algorithm 1;
 *         A. Douillard et al., "DiLoCo: distributed low-communication training of language models", arXiv:2311.08105,
 *         algorithm 1; Nesterov's momentum as there and in torch.optim.SGD
 */
#ifndef ORRERY_OUTER_H
#define ORRERY_OUTER_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>

struct outer {
    int64_t every;                      /* steps of a round, H; 0: no outer step, replicas are copies */
    double lr, momentum;
};

/** Whether an outer step follows step t, counted from 1. */
static inline bool outer_follows(const struct outer *o, int64_t t) { return o->every > 0 && t % o->every == 0; }

/** Number of outer steps in steps from + 1 .. to. */
static inline int64_t outer_steps(const struct outer *o, int64_t from, int64_t to)
{
    return o->every > 0 ? to / o->every - from / o->every : 0;
}

/**
 * The outer step of one tensor of all replicas: steps anchor and m, then sets every theta to the anchor.
 * Rounding: each element in double, stored in the tensors' format.
 * @param anchor  fp32 or fp64.
 * @param m       the momentum, of its shape; not read or written if momentum is 0.
 * @param theta   [replicas] of its shape.
 */
void outer_step(const struct outer *, struct tensor anchor, struct tensor m, const struct tensor theta[], int replicas);

#endif
