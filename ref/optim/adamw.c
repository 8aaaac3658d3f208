/* AdamW: Adam with weight decay applied to the weights directly, not through the gradient.
 *
 * Source   I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", arXiv:1711.05101, algorithm 2
 * Step t   g' = g * gradient_scale
 *          w  = w - lr * decay * w
 *          m  = beta1 m + (1 - beta1) g'
 *          v  = beta2 v + (1 - beta2) g'^2
 *          w  = w - lr/(1 - beta1^t) * m / (sqrt(v)/sqrt(1 - beta2^t) + eps)
 */
#include "ref/ops/reduce.h"
#include "ref/optim/table.h"

void FN(adamw_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const struct hyperparameters *h = s.hyper;
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w), *restrict m = DATA(state[0]), *restrict v = DATA(state[1]);
    const real *restrict G = CONST_DATA(g);
    const real scale = (real)s.gradient_scale, keep = (real)(1 - s.lr * s.weight_decay);
    const real beta1 = (real)h->beta1, beta2 = (real)h->beta2, new1 = (real)(1 - h->beta1), new2 = (real)(1 - h->beta2);
    const real rate = (real)(s.lr / (1 - pow(h->beta1, (double)s.t)));
    const real root = (real)(1 / sqrt(1 - pow(h->beta2, (double)s.t))), eps = (real)h->eps;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        const real gradient = G[i] * scale;
        m[i] = beta1 * m[i] + new1 * gradient;
        v[i] = beta2 * v[i] + new2 * gradient * gradient;
        W[i] = keep * W[i] - rate * m[i] / (REAL_FN(sqrt)(v[i]) * root + eps);
    }
}
