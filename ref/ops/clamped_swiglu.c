/* clamped_swiglu: a swiglu whose numbers are clamped before, with a steeper sigmoid; what it gates is moved by 1.
 *
 * Source    class GptOssExperts of transformers; OpenAI, "gpt-oss-120b & gpt-oss-20b model card", arXiv:2508.10925
 * Shapes    X, dX [N,2F]: the gate g, then the gated half u;  Y, dY [N,F]
 * Forward   g' = min(g, limit),  u' = max(-limit, min(u, limit))
 *           y  = (u' + 1) g' s,  s = 1/(1 + e^(-alpha g'))
 * Backward  dg = dy (u' + 1) s (1 + alpha g' (1-s)),  1-s = 1/(1 + e^(alpha g'));  0 where g is above the limit
 *           du = dy g' s;  0 where u is outside
 * Rounding  elementwise; a NaN stays one
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

static inline real FN(at_most)(real x, real limit) { return x > limit ? limit : x; }
static inline real FN(within)(real x, real limit) { return x < -limit ? -limit : FN(at_most)(x, limit); }

void FN(clamped_swiglu_forward)(struct tensor Y, struct tensor X, struct clamped c)
{
    const int64_t N = tensor_rows(Y), F = tensor_cols(Y);
    const real alpha = (real)c.alpha, limit = (real)c.limit;
    assert(tensor_rows(X) == N && tensor_cols(X) == 2 * F);

    #pragma omp parallel for schedule(static) if (N * F > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * 2 * F;
        real *restrict y = DATA(Y) + n * F;
        for (int64_t f = 0; f < F; f++) {
            const real g = FN(at_most)(x[f], limit), u = FN(within)(x[F + f], limit);
            y[f] = g / (1 + FN(fast_exp)(-alpha * g)) * (u + 1);
        }
    }
}

void FN(clamped_swiglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct clamped c)
{
    const int64_t N = tensor_rows(dY), F = tensor_cols(dY);
    const real alpha = (real)c.alpha, limit = (real)c.limit;
    assert(tensor_rows(X) == N && tensor_cols(X) == 2 * F && tensor_count(dX) == tensor_count(X));

    #pragma omp parallel for schedule(static) if (N * F > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * 2 * F, *restrict dy = CONST_DATA(dY) + n * F;
        real *restrict dg = DATA(dX) + n * 2 * F, *restrict du = dg + F;
        for (int64_t f = 0; f < F; f++) {
            const real g = FN(at_most)(x[f], limit), u = FN(within)(x[F + f], limit);
            const real s = 1 / (1 + FN(fast_exp)(-alpha * g)), rest = 1 / (1 + FN(fast_exp)(alpha * g));
            dg[f] = x[f] > limit ? 0 : dy[f] * (u + 1) * s * (1 + alpha * g * rest);
            du[f] = x[F + f] > limit || x[F + f] < -limit ? 0 : dy[f] * (g * s);
        }
    }
}
