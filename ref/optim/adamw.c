/* AdamW: Adam with weight decay applied to the weights directly, not through the gradient.
 *
 * Source   I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", arXiv:1711.05101, algorithm 2
 * Step t   g' = g * gradient_scale
 *          w  = w - lr * decay * w
 *          m  = beta1 m + (1 - beta1) g'
 *          v  = beta2 v + (1 - beta2) g'^2
 *          w  = w - lr/(1 - beta1^t) * m / (sqrt(v)/sqrt(1 - beta2^t) + eps)
 * Called   registry.h lists the optimizer; ref/optim/optimizer.c calls its step in the format of the weights.  No
 *          function returns an error code.
 * Released code differs in where weights decay, where eps stands, and in what the factors are computed: conventions.h.
 * All of that is in the factors (factors.c).
 */
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/factors.h"
#include "ref/optim/registry.h"

/* torch     torch/optim/adamw.py of PyTorch 2.15.0, AdamW.__init__
 * megatron  megatron/core/optimizer/optimizer_config.py of Megatron Core 0.16.1
 * deepspeed deepspeed/ops/adam/fused_adam.py of DeepSpeed 0.19.8, FusedAdam.__init__
 * galore    galore_torch/adamw.py of galore-torch 1.0, AdamW.__init__ */
ONCE(static const struct package_usual adamw_usual[PROFILES] = {
    [AS_TORCH] = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01 },
    [AS_MEGATRON] = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01 },
    [AS_DEEPSPEED] = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    [AS_GALORE_TORCH] = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6 },
};)

OPTIMIZER(adamw, adamw_step,
    .name = "adamw", .description = "Adam with decoupled weight decay and bias correction",
    .source = "I. Loshchilov, F. Hutter, arXiv:1711.05101; D. Kingma, J. Ba, arXiv:1412.6980",
    .states = 2, .state_name = { "exp_avg", "exp_avg_sq" }, .operations = 15,
    .usual = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1 },
    .usual_as = adamw_usual)

void FN(adamw_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const struct adam_factors f = adam_factors(s);
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w), *restrict m = DATA(state[0]), *restrict v = DATA(state[1]);
    const real *restrict G = CONST_DATA(g);
    const real scale = (real)s.gradient_scale, before = (real)f.before, after = (real)f.after;
    const real beta1 = (real)f.beta1, beta2 = (real)f.beta2, new1 = (real)f.new1, new2 = (real)f.new2;
    const real rate = (real)f.rate, root = (real)f.root, eps = (real)f.eps;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        /* m and v follow g' and g'^2; W = after (before W - rate m / (sqrt(v) root + eps)), see factors.h. */
        const real gradient = G[i] * scale;
        m[i] = beta1 * m[i] + new1 * gradient;
        v[i] = beta2 * v[i] + new2 * gradient * gradient;
        W[i] = after * (before * W[i] - rate * m[i] / (REAL_FN(sqrt)(v[i]) * root + eps));
    }
}
