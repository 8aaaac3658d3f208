/* outer.h -- replicas of a model that train apart, and the step that brings them together again.
 *
 * Each replica takes `every` steps of its own optimizer on its own sequences; nobody adds gradients up.  Then the way
 * that each has gone from the common weights, the anchor, is taken for a gradient, its outer gradient, and their mean
 * steps the anchor:
 *
 *     g(r)   = anchor - theta(r)                          each replica r of R
 *     m      = momentum m + mean of g                     zero at first; none of it with momentum 0
 *     anchor = anchor - lr (mean of g + momentum m)       Nesterov's; with momentum 0: - lr (mean of g)
 *     theta(r) = anchor                                   all begin the next round together
 *
 * With lr 1 and momentum 0 the anchor is the mean of the replicas: local SGD.  States of the inner optimizers stay
 * where they are.
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
    int64_t every;                      /* steps of a round, H; 0: there is no outer step, replicas are copies */
    double lr, momentum;
};

/** Whether an outer step follows step t, counted from 1. */
static inline bool outer_follows(const struct outer *o, int64_t t) { return o->every > 0 && t % o->every == 0; }

/** Outer steps among the steps after `from`, up to `to`. */
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

/** g = anchor - theta, any piece of a tensor.  All of one format, fp32 or fp64. */
static inline void outer_gradient(struct tensor g, struct tensor anchor, struct tensor theta)
{
    (anchor.dtype == F32 ? outer_gradient_f32 : outer_gradient_f64)(g, anchor, theta);
}

/**
 * The outer step of any piece of a tensor: anchor and m step, and theta becomes the anchor.
 * Rounding: each element in the tensors' format; the mean is the sum times 1/replicas.
 * @param m    as large as the others; without data where momentum is 0.
 * @param sum  of the outer gradients of all replicas.
 */
static inline void outer_step(struct tensor theta, struct tensor anchor, struct tensor m, struct tensor sum,
                              int replicas, struct outer o)
{
    (anchor.dtype == F32 ? outer_step_f32 : outer_step_f64)(theta, anchor, m, sum, replicas, o);
}

#endif
