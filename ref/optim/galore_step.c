/* GaLore: AdamW for a projected gradient, and the same AdamW for all other parameters.
 *
 * Source   galore-torch 1.0, galore_torch/adamw.py: the authors' code, in its order.  It differs from adamw.c in where
 *          eps is added (to sqrt(v) before its bias is corrected) and in when weights decay (after the step)
 * Step t   R' = R * gradient_scale; natural GaLore: natural_gradient of that
 *          m = beta1 m + (1 - beta1) R',  v = beta2 v + (1 - beta2) R'^2
 *          N = m / (sqrt(v) + eps)
 *          W = W - A rate P N,  rate = lr sqrt(1 - beta2^t) / (1 - beta1^t);  without a projection  W = W - rate N
 *          W = W - lr decay W
 * Called   verify/reference/reference_low_rank.c, galore.c and galore_parts.c call these functions.  No function
 *          returns an error code.
 * With moments as codes (conventions.h) the authors' adamw8bit.py: galore_codes.c
 */
#include "ref/ops/gemm.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/registry.h"
#include "ref/optim/table.h"
#include <string.h>

/* From the authors' code: betas and eps from its optimizer, the rest from its scripts. */
#define GALORE_USUAL .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .refresh = 200, .galore_scale = 0.25

OPTIMIZER(galore, galore_adamw_step,
    .name = "galore", .description = "AdamW in the r directions of a matrix's gradient that are largest, found anew "
                                     "every T steps",
    .source = "J. Zhao et al., arXiv:2403.03507; the authors' code, galore-torch 1.0",
    .memory = "a r + 2 b r numbers for a linear layer's matrix of sides a <= b, r <= a; 2 for each other parameter",
    .states = 3, .state_name = { "exp_avg", "exp_avg_sq", "projection" }, .low_rank = true,
    .usual = { GALORE_USUAL })

OPTIMIZER(natural_galore, galore_adamw_step,
    .name = "natural-galore",
    .description = "galore with natural gradients: the inverse Fisher matrix of the last s projected ones",
    .source = "A. Das, arXiv:2410.16029, algorithm 1; the released code projects both sides of a matrix instead of one",
    .memory = "a r + (2 + s) b r numbers for a linear layer's matrix of sides a <= b, r <= a; 2 for each other "
              "parameter",
    .states = 4, .state_name = { "exp_avg", "exp_avg_sq", "projection", "history" }, .low_rank = true, .natural = true,
    .usual = { GALORE_USUAL, .history = 20, .damping = 1e-3 })

void FN(galore_project)(struct low_rank p, struct tensor G, struct tensor P, void *scratch)
{
    const int64_t m = G.dim[0], n = G.dim[1], count = p.b * p.r;
    real *R = scratch;
    /* R [m,r] = G P on the right, R [r,n] = P^T G on the left. */
    if (p.right) FN(gemm)(AS_IS, AS_IS, m, p.r, n, 1, CONST_DATA(G), n, CONST_DATA(P), p.r, 0, R, p.r);
    else FN(gemm)(TRANSPOSED, AS_IS, p.r, n, m, 1, CONST_DATA(P), p.r, CONST_DATA(G), n, 0, R, n);
    /* R takes the first elements of G; zeros follow, so that norms over G are norms of R. */
    memcpy(G.data, R, (size_t)count * sizeof *R);
    memset(DATA(G) + count, 0, (size_t)(m * n - count) * sizeof *R);
}

/* R is overwritten by N. */
static void FN(moments)(real *restrict R, int64_t n, real *restrict m, real *restrict v, struct step s)
{
    const struct hyperparameters *h = s.hyper;
    const real beta1 = (real)h->beta1, beta2 = (real)h->beta2, new1 = (real)(1 - h->beta1), new2 = (real)(1 - h->beta2);
    const real eps = (real)h->eps;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + new1 * R[i];
        v[i] = beta2 * v[i] + new2 * R[i] * R[i];
        R[i] = m[i] / (REAL_FN(sqrt)(v[i]) + eps);
    }
}

static void FN(decay)(real *restrict W, int64_t n, struct step s)
{
    const real rate = (real)(s.lr * s.weight_decay);
    if (rate == 0) return;
    for (int64_t i = 0; i < n; i++) W[i] -= rate * W[i];
}

void FN(galore_adamw_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    if (low_rank_has_codes(s.hyper)) {
        FN(galore_coded_step)(w, g, state, s);
        return;
    }
    const struct hyperparameters *h = s.hyper;
    const int64_t n = tensor_count(w);
    real *restrict W = DATA(w), *restrict m = DATA(state[0]), *restrict v = DATA(state[1]);
    const real *restrict G = CONST_DATA(g);
    const real scale = (real)s.gradient_scale, rate = (real)galore_rate(s), lost = (real)(s.lr * s.weight_decay);
    const real beta1 = (real)h->beta1, beta2 = (real)h->beta2, new1 = (real)(1 - h->beta1), new2 = (real)(1 - h->beta2);
    const real eps = (real)h->eps;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        const real gradient = G[i] * scale;
        /* W = W - rate N with N = m / (sqrt(v) + eps); then W = W - lr decay W. */
        m[i] = beta1 * m[i] + new1 * gradient;
        v[i] = beta2 * v[i] + new2 * gradient * gradient;
        W[i] -= rate * (m[i] / (REAL_FN(sqrt)(v[i]) + eps));
        W[i] -= lost * W[i];
    }
}

void FN(galore_step)(struct low_rank p, struct tensor w, struct tensor g, const struct tensor state[], struct step s,
                     bool natural)
{
    const int64_t m = w.dim[0], n = w.dim[1], count = p.b * p.r;
    const double rate = s.hyper->galore_scale * galore_rate(s);
    const real *P = CONST_DATA(state[LOW_RANK_PROJECTION]), scale = (real)s.gradient_scale;
    real *R = DATA(g);
    /* R = clipped projected gradient, which galore_project has left in the first elements of g. */
    for (int64_t i = 0; i < count; i++) R[i] *= scale;
    if (natural) FN(natural_gradient)(tensor_1d(R, g.dtype, count), state[LOW_RANK_HISTORY], s.t, s.hyper->damping);
    if (low_rank_has_codes(s.hyper)) FN(galore_coded_moments)(tensor_1d(R, g.dtype, count), state, s);
    else FN(moments)(R, count, DATA(state[LOW_RANK_EXP_AVG]), DATA(state[LOW_RANK_EXP_AVG_SQ]), s);
    /* W [m,n] = W - A rate R P^T on the right, W - A rate P R on the left. */
    if (p.right) FN(gemm)(AS_IS, TRANSPOSED, m, n, p.r, -rate, R, p.r, P, p.r, 1, DATA(w), n);
    else FN(gemm)(AS_IS, AS_IS, m, n, p.r, -rate, P, p.r, R, n, 1, DATA(w), n);
    FN(decay)(DATA(w), m * n, s);
}
