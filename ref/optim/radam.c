/* RAdam: Adam that needs no warm-up.  While its second moment comes of few gradients, steps do without that moment;
 * then they are shorter by a factor that rises to 1.
 *
 * Source   L. Liu et al., "On the variance of the adaptive learning rate and beyond", arXiv:1908.03265, algorithm 2;
 *          torch.optim.RAdam, which takes a length above 5 where the paper takes 4, and adds eps to sqrt(v)
 * Step t   g' = g * gradient_scale
 *          w  = w - lr * decay * w
 *          m  = beta1 m + (1 - beta1) g'
 *          v  = beta2 v + (1 - beta2) g'^2
 *          l  = a - 2 t beta2^t / (1 - beta2^t)       gradients that v comes of;  a = 2 / (1 - beta2) - 1 in the end
 *          w  = w - lr/(1 - beta1^t) * m                                               where l <= 5
 *          w  = w - lr/(1 - beta1^t) * m * r * sqrt(1 - beta2^t) / (sqrt(v) + eps)     else
 *          r  = sqrt((l - 4) (l - 2) a / ((a - 4) (a - 2) l))
 * Called   registry.h lists the optimizer; ref/optim/optimizer.c calls its step in the format of the weights.  No
 *          function returns an error code.
 */
#include "ref/exact/scalars.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/registry.h"

OPTIMIZER(radam, radam_step,
    .name = "radam", .description = "Adam without a warm-up: its first steps do without the second moment",
    .source = "L. Liu et al., arXiv:1908.03265; torch.optim.RAdam, with decoupled weight decay",
    .states = 2, .state_name = { "exp_avg", "exp_avg_sq" }, .operations = 16,
    .usual = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1 })

/* The factor r sqrt(1 - beta2^t) of step t, in double; 0: the step does without the second moment. */
static double rectification(double beta2, int64_t t)
{
    const double power = scalar_power(beta2, (double)t), a = 2 / (1 - beta2) - 1,
                 l = a - 2 * (double)t * power / (1 - power);
    return l > 5 ? sqrt((l - 4) * (l - 2) * a / ((a - 4) * (a - 2) * l)) * sqrt(1 - power) : 0;
}

void FN(radam_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w), *restrict m = DATA(state[0]), *restrict v = DATA(state[1]);
    const real *restrict G = CONST_DATA(g);
    const double beta1 = s.hyper->beta1, beta2 = s.hyper->beta2, rectified = rectification(beta2, s.t),
        lr = s.lr / (1 - scalar_power(beta1, (double)s.t));
    const real scale = (real)s.gradient_scale, keep = (real)(1 - s.lr * s.weight_decay), eps = (real)s.hyper->eps;
    const real keep1 = (real)beta1, keep2 = (real)beta2, new1 = (real)(1 - beta1), new2 = (real)(1 - beta2);
    const real rate = (real)(rectified > 0 ? lr * rectified : lr);
    const bool divides = rectified > 0;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        /* m and v follow g' and g'^2; W = keep W - rate m, or keep W - rate m / (sqrt(v) + eps). */
        const real gradient = G[i] * scale;
        m[i] = keep1 * m[i] + new1 * gradient;
        v[i] = keep2 * v[i] + new2 * gradient * gradient;
        W[i] = keep * W[i] - rate * m[i] / (divides ? REAL_FN(sqrt)(v[i]) + eps : 1);
    }
}
