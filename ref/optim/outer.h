/* outer.h -- replicas of a model that train separately, and the outer step that combines them: the serial rule.
 *
 * Each replica takes `every` steps of its own optimizer on its own sequences, without reducing gradients.  Then the
 * mean over the replicas of what they have moved from the common weights (the anchor) is a gradient that steps these:
 *
 *     g        = mean of anchor - theta(r) over the replicas r
 *     anchor   = stepped by g, and by a momentum m if the rule has one, at first zero
 *     theta(r) = anchor                                   all replicas start the next round from the anchor
 *
 * The inner optimizers keep their states.  How the anchor is stepped is a rule: a value, which a data scheme names.
 *
 * This is what golden files hold and what devices are compared with.  Devices do not call it: they have their own
 * (emulated_devices/device/outward.c), so that a mistake in either is seen.
 *
 * Source  S. U. Stich, "Local SGD converges fast and communicates little", arXiv:1805.09767, algorithm 1;
 *         A. Douillard et al., "DiLoCo: distributed low-communication training of language models", arXiv:2311.08105,
 *         algorithm 1
 * Called  Files of schemes/, run/, verify/, model/ and other rooms call these functions.  No function returns an
 *         error code.
 */
#ifndef ORRERY_OUTER_H
#define ORRERY_OUTER_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>

struct outer;

/* How one element is stepped. */
struct outer_rule {
    bool momentum;                      /* it keeps m from one outer step to the next */
    /* Step *anchor, and *m, by g; linear in all three.  rate: the inner learning rate of the round's last step. */
    void (*step)(const struct outer *, double rate, double g, double *anchor, double *m);
};

/* anchor = anchor - lr g.  With lr 1 it is the mean of the replicas: local SGD. */
extern const struct outer_rule outer_average;
/* m = momentum m + g;  anchor = anchor - lr (g + momentum m).  Nesterov's, as in DiLoCo and torch.optim.SGD. */
extern const struct outer_rule outer_nesterov;
/* m = momentum m + g / rate;  anchor = anchor - lr rate m.  SlowMo's: outer_slow_momentum.c. */
extern const struct outer_rule outer_slow_momentum;

struct outer {
    const struct outer_rule *rule;      /* how replicas are combined; NULL with every = 0 */
    int64_t every;                      /* steps of a round, H; 0: no outer step, replicas are copies */
    double lr, momentum; /* learning rate and momentum of the outer step; the rule's formula says how they enter */
};

/** Whether its rule keeps a momentum. */
static inline bool outer_has_momentum(const struct outer *outer) { return outer->rule && outer->rule->momentum; }

/** Whether an outer step follows step t, counted from 1. */
static inline bool outer_follows(const struct outer *outer, int64_t t)
{
    return outer->every > 0 && t % outer->every == 0;
}

/** Number of outer steps in steps from + 1 .. to. */
static inline int64_t outer_steps(const struct outer *outer, int64_t from, int64_t to)
{
    return outer->every > 0 ? to / outer->every - from / outer->every : 0;
}

/**
 * The outer step of one tensor of all replicas: steps anchor and m, then sets every theta to the anchor.
 * Rounding: each element in double, stored in the tensors' format.
 * @param anchor  fp32 or fp64.
 * @param m       the momentum, of its shape; not read or written if the rule has none.
 * @param theta   [replicas] of its shape.
 * @param rate    the inner learning rate of the round's last step.
 */
void outer_step(const struct outer *, double rate, struct tensor anchor, struct tensor m, const struct tensor theta[],
                int replicas);

#endif
