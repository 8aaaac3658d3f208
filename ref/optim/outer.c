#include "ref/optim/outer.h"

static void average(const struct outer *o, double rate, double g, double *anchor, double *m)
{
    (void)rate, (void)m;
    *anchor -= o->lr * g;
}

static void nesterov(const struct outer *o, double rate, double g, double *anchor, double *m)
{
    (void)rate;
    *m = o->momentum * *m + g;
    *anchor -= o->lr * (g + o->momentum * *m);
}

const struct outer_rule outer_average = { .step = average }, outer_nesterov = { .momentum = true, .step = nesterov };

/* The mean of the differences, and not the anchor's difference from the mean: in fp64 that would round, and the ways
 * are short. */
void outer_step(const struct outer *o, double rate, struct tensor anchor, struct tensor m, const struct tensor theta[],
                int replicas)
{
    for (int64_t i = 0; i < tensor_count(anchor); i++) {
        double g = 0, a = tensor_get(anchor, i), momentum = o->rule->momentum ? tensor_get(m, i) : 0;
        for (int r = 0; r < replicas; r++) g += (a - tensor_get(theta[r], i)) / replicas;
        o->rule->step(o, rate, g, &a, &momentum);
        tensor_set(anchor, i, a);
        if (o->rule->momentum) tensor_set(m, i, momentum);
        for (int r = 0; r < replicas; r++) tensor_set(theta[r], i, a);
    }
}
