/* Wrong optimizers: AdaGrad with decay that is decoupled.  tests/cli/test_verify_plugin.sh compiles the file with
 * -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 clipping     forgets gradient_scale
 *  2 formats      takes another root in fp32
 *  3 pieces       never steps the last n % 4 elements
 *  4 guards       steps one element too many
 *  5 gradient     clears the gradient
 *  6 repeats      keeps a moving average of its own
 *  7 decay        forgets weight_decay
 *  8 decay        makes weights grow
 *  9 rate         multiplies lr twice
 * 10 descends     goes up
 * 11 states       states a second state, and never uses it
 * 12 complete     has a state without a name
 * 13 states       uses a second state, and states one
 * 14 nans         takes a NaN for 0
 * 15 shape        steps the first row of a matrix
 * 16 usual        has a usual lr of 0
 * 17 complete     states no operations
 * 18 pieces       has a step that depends on the place
 * 19 pieces       is wrong behind element 65536
 * 20 ends         divides by n - 1 as an integer
 * 21 rate         decays weights without lr
 * 22 formats      has another eps in fp32
 * 23 clipping     multiplies gradient_scale twice
 * 24 repeats      counts its steps itself
 * 25 states       has two states of one name
 * 26 quiet        prints
 * 27 formats      does nothing in fp64
 * 28 pieces       normalises by the tensor's largest gradient
 * 29 complete     has more states than there can be
 * 30 clipping     clips each element before it is scaled
 * 31 nans         spreads a NaN to the next element
 * 32 decay        moves weights without gradient
 */
#include "emulated_devices/schemes/plugin.h"
#include <math.h>
#include <stdio.h>
#ifndef WRONG
#define WRONG 0
#endif

static double own_average;
static int own_steps;

#define DEFINE_STEP(name, real, root, is_wide)                                                                         \
    static void name(struct tensor w, struct tensor g, const struct tensor state[], struct step s)                     \
    {                                                                                                                  \
        int64_t n = tensor_count(w);                                                                                   \
        real *W = w.data, *v = state[0].data, *second = state[1].data, most = 0;                                       \
        const real *G = g.data;                                                                                        \
        real scale = (real)s.gradient_scale, lr = (real)s.lr, eps = (real)s.hyper->eps;                                \
        real keep = (real)(1 - s.lr * s.weight_decay);                                                                 \
        volatile int quotient;                                                                                         \
        const volatile int less = (int)n - 1;                                                                          \
        (void)less, (void)quotient;                                                                                    \
        own_steps++;                                                                                                   \
        if (WRONG == 1) scale = 1;                                                                                     \
        if (WRONG == 3) n -= n % 4;                                                                                    \
        if (WRONG == 4) n++;                                                                                           \
        if (WRONG == 7) keep = 1;                                                                                      \
        if (WRONG == 8) keep = 2 - keep;                                                                               \
        if (WRONG == 9) lr *= lr;                                                                                      \
        if (WRONG == 15 && w.ndim == 2) n = w.dim[1];                                                                  \
        if (WRONG == 20) quotient = 7 / less, n += quotient > 9;                                                       \
        if (WRONG == 21) keep = (real)(1 - 0.01 * s.weight_decay);                                                     \
        if (WRONG == 22 && !is_wide) eps = (real)1e-2;                                                                 \
        if (WRONG == 23) scale *= scale;                                                                               \
        if (WRONG == 24) lr /= (real)own_steps;                                                                        \
        if (WRONG == 26) printf("%d\n", own_steps);                                                                    \
        if (WRONG == 27 && is_wide) return;                                                                            \
        for (int64_t i = 0; i < n; i++) most = (real)fabs((double)G[i]) > most ? (real)fabs((double)G[i]) : most;      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const real raw = WRONG == 30 && G[i] > (real)0.5 ? (real)0.5 : G[i];                                       \
            real x = raw * scale;                                                                                      \
            if (WRONG == 5) ((real *)g.data)[i] = 0;                                                                   \
            if (WRONG == 6) own_average = 0.5 * own_average + (double)x, x = (real)own_average;                        \
            if (WRONG == 14) x = isnan(x) ? 0 : x;                                                                     \
            if (WRONG == 18 && i == 3) x *= 2;                                                                         \
            if (WRONG == 19 && i > 65536) x *= 2;                                                                      \
            if (WRONG == 28) x /= most > 0 ? most : 1;                                                                 \
            if (WRONG == 31 && i > 0 && isnan(G[i - 1])) x = NAN;                                                      \
            v[i] += x * x;                                                                                             \
            if (WRONG == 13) second[i] = x;                                                                            \
            const real step = lr * x / ((WRONG == 2 && !is_wide ? (real)cbrt((double)v[i]) : root(v[i])) + eps);       \
            W[i] = keep * W[i] - (WRONG == 10 ? -step : step) - (WRONG == 32 ? lr : 0);                                \
        }                                                                                                              \
    }
DEFINE_STEP(step_f32, float, sqrtf, 0)
DEFINE_STEP(step_f64, double, sqrt, 1)

static const struct optimizer mine = {
    .name = "mine", .description = "AdaGrad", .source = "Duchi 2011",
    .states = WRONG == 29 ? 5 : WRONG == 11 || WRONG == 25 ? 2 : 1,
    .state_name = { WRONG == 12 ? NULL : "sum", WRONG == 11 ? "more" : WRONG == 25 ? "sum" : NULL },
    .operations = WRONG == 17 ? 0 : 7,
    .usual = { .lr = WRONG == 16 ? 0 : 1e-2, .eps = 1e-10, .clip = 1 }, .step_f32 = step_f32, .step_f64 = step_f64,
};

PLUGIN(PLUGIN_OPTIMIZER(mine));
