/* SGD: a step against the gradient, plain or with momentum.
 *
 * Source   H. Robbins, S. Monro, "A stochastic approximation method", doi:10.1214/aoms/1177729586;
 *          momentum: B. Polyak, "Some methods of speeding up the convergence of iteration methods",
 *          doi:10.1016/0041-5553(64)90137-5
 * Step     g' = g * gradient_scale            (with coupled decay: + decay * w)
 *          b  = momentum b + g'               (plain: b = g', no state)
 *          w  = w - lr * decay * w - lr * b   (with coupled decay: w - lr * b)
 * Called   registry.h lists the optimizers; ref/optim/optimizer.c calls their step in the format of the weights.  No
 *          function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/factors.h"
#include "ref/optim/registry.h"

OPTIMIZER(sgd, sgd_step,
    .name = "sgd", .description = "stochastic gradient descent, plain",
    .source = "H. Robbins, S. Monro, doi:10.1214/aoms/1177729586", .operations = 4,
    .usual = { .lr = 0.1 })

/* The step of mezo along its direction is sgd's; ref/model/mezo.h has the rest. */
OPTIMIZER(mezo, sgd_step,
    .name = "mezo", .description = "SGD along a drawn direction, by the difference of two losses: no backward pass",
    .source = "S. Malladi et al., arXiv:2305.17333",
    .usual = { .lr = 1e-3, .distance = 1e-3 }, .forward_only = true, .operations = 4)

void FN(sgd_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const struct sgd_factors f = sgd_factors(s);
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w);
    const real *restrict G = CONST_DATA(g);
    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
    (void)state;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    /* W = keep W - lr (scale G + coupled W); keep = 1 - lr decay, coupled = 0; or keep = 1, coupled = decay. */
    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
}

OPTIMIZER(momentum, momentum_step,
    .name = "momentum", .description = "stochastic gradient descent with heavy-ball momentum",
    .source = "B. Polyak, doi:10.1016/0041-5553(64)90137-5",
    .states = 1, .state_name = { "momentum_buffer" }, .operations = 6,
    .usual = { .lr = 0.05, .momentum = 0.9 })

void FN(momentum_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const struct sgd_factors f = sgd_factors(s);
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w), *restrict b = DATA(state[0]);
    const real *restrict G = CONST_DATA(g);
    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled;
    const real momentum = (real)s.hyper->momentum, lr = (real)s.lr;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        /* b = momentum b + g', then W = keep W - lr b. */
        b[i] = momentum * b[i] + (G[i] * scale + coupled * W[i]);
        W[i] = keep * W[i] - lr * b[i];
    }
}
