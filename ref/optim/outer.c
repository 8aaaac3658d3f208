/* outer.c -- the outer step of replicas, as their papers have it: averaging and Nesterov momentum.
 *
 * ref/model/local.c and verify/reference/ call this file; outer_slow_momentum.c has a third rule.  No function here
 * can fail.
 */
#include "ref/optim/outer.h"

static void average(const struct outer *outer, double rate, double g, double *anchor, double *m)
{
    (void)rate, (void)m;
    /* g is the mean distance to the replicas: with lr 1 the anchor becomes their mean. */
    *anchor -= outer->lr * g;
}

static void nesterov(const struct outer *outer, double rate, double g, double *anchor, double *m)
{
    (void)rate;
    /* Nesterov's look-ahead: the step adds the new momentum once more. */
    *m = outer->momentum * *m + g;
    *anchor -= outer->lr * (g + outer->momentum * *m);
}

const struct outer_rule outer_average = { .step = average }, outer_nesterov = { .momentum = true, .step = nesterov };

/* g is a mean of differences. The anchor's difference from the mean would round first, and differences are small. */
void outer_step(const struct outer *outer, double rate, struct tensor anchor, struct tensor m,
                const struct tensor theta[], int replicas)
{
    for (int64_t i = 0; i < tensor_count(anchor); i++) {
        double g = 0, a = tensor_get(anchor, i), momentum = outer->rule->momentum ? tensor_get(m, i) : 0;
        /* g[i] = mean over replicas of anchor[i] - theta_r[i]. */
        for (int r = 0; r < replicas; r++) g += (a - tensor_get(theta[r], i)) / replicas;
        outer->rule->step(outer, rate, g, &a, &momentum);
        tensor_set(anchor, i, a);
        if (outer->rule->momentum) tensor_set(m, i, momentum);
        /* Every replica begins the next round from the new anchor. */
        for (int r = 0; r < replicas; r++) tensor_set(theta[r], i, a);
    }
}
