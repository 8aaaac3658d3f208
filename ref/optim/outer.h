/* outer.h -- replicas of a model that train separately, and the outer step that combines them.
 *
 * Each replica takes `every` steps of its own optimizer on its own sequences, without reducing gradients.  Then the
 * difference between the common weights (the anchor) and its weights is its outer gradient; the mean of all outer
 * gradients steps the anchor:
 *
 *     g(r)   = anchor - theta(r)                          for each replica r
 *     m      = momentum m + mean of g                     initially zero; not stored with momentum 0
 *     anchor = anchor - lr (mean of g + momentum m)       Nesterov's; with momentum 0: - lr (mean of g)
 *     theta(r) = anchor                                   all replicas start the next round from the anchor
 *
 * With lr 1 and momentum 0 the anchor is the mean of the replicas: local SGD.  The inner optimizers keep their states.
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

void outer_gradient_f32(struct tensor g, struct tensor anchor, struct tensor theta);
void outer_gradient_f64(struct tensor g, struct tensor anchor, struct tensor theta);
void outer_step_f32(struct tensor theta, struct tensor anchor, struct tensor m, struct tensor sum, int replicas,
                    struct outer);
void outer_step_f64(struct tensor theta, struct tensor anchor, struct tensor m, struct tensor sum, int replicas,
                    struct outer);

/** g = anchor - theta, for any shard of a tensor.  All in one format, fp32 or fp64. */
static inline void outer_gradient(struct tensor g, struct tensor anchor, struct tensor theta)
{
    (anchor.dtype == F32 ? outer_gradient_f32 : outer_gradient_f64)(g, anchor, theta);
}

/**
 * The outer step of any shard of a tensor: steps anchor and m, then sets theta to the anchor.
 * Rounding: each element in the tensors' format; the mean is the sum times 1/replicas.
 * @param m    the momentum, of the same shape; without data if momentum is 0.
 * @param sum  the sum of the outer gradients of all replicas.
 */
static inline void outer_step(struct tensor theta, struct tensor anchor, struct tensor m, struct tensor sum,
                              int replicas, struct outer o)
{
    (anchor.dtype == F32 ? outer_step_f32 : outer_step_f64)(theta, anchor, m, sum, replicas, o);
}

#endif
