/* lion: steps of one size, by the sign of a moving average of gradients.
 *
 * Source   X. Chen et al., "Symbolic discovery of optimization algorithms", arXiv:2302.06675, algorithm 2
 * Step     g' = g * gradient_scale
 *          u  = sign(beta1 m + (1 - beta1) g')
 *          m  = beta2 m + (1 - beta2) g'
 *          w  = w - lr (u + decay w)
 *
 * A template for plug-ins (docs/authors/plugins.md).  Each element is stepped alone, so that devices can share the
 * states:
 *     orrery train --plugin lion.c --optimizer lion --dp 4 --zero 3 --check ref
 */
#include "emulated_devices/schemes/plugin.h"

/* The step in one number format; with every factor in it, so that all devices and one device get the same bits. */
#define DEFINE_STEP(name, real)                                                                                        \
    static void name(struct tensor w, struct tensor g, const struct tensor state[], struct step s)                     \
    {                                                                                                                  \
        const int64_t n = tensor_count(w);                                                                             \
        real *W = w.data, *m = state[0].data;                                                                          \
        const real *G = g.data;                                                                                        \
        const real scale = (real)s.gradient_scale, lr = (real)s.lr, keep = (real)(1 - s.lr * s.weight_decay);          \
        const real beta1 = (real)s.hyper->beta1, beta2 = (real)s.hyper->beta2;                                         \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const real x = G[i] * scale, u = beta1 * m[i] + (1 - beta1) * x;                                           \
            m[i] = beta2 * m[i] + (1 - beta2) * x;                                                                     \
            W[i] = keep * W[i] - lr * (u > 0 ? 1 : u < 0 ? -1 : u);     /* NaN stays NaN */                            \
        }                                                                                                              \
    }
DEFINE_STEP(step_f32, float)
DEFINE_STEP(step_f64, double)

static const struct optimizer lion = {
    .name = "lion", .description = "steps of one size, by the sign of a moving average",
    .source = "X. Chen et al., arXiv:2302.06675",
    .states = 1, .state_name = { "exp_avg" }, .operations = 10,
    .usual = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 1, .clip = 1 },
    .step_f32 = step_f32, .step_f64 = step_f64,
};

PLUGIN(PLUGIN_OPTIMIZER(lion));
