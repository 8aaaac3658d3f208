/* streams: the results of P parallel streams, and their weighted mean for each token.
 *
 * Source    M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475; the order of columns and the
 *           smoothing are those of its released code, QwenLM/ParScale
 * Shapes    H, dH [PN,D]: the rows of stream 0, then of stream 1, ...;  X, dX [N,DP];  logits, dlogits, p [N,P];
 *           Y, dY [N,D]
 * Beside    x[n, d P + i] = h[i N + n, d]
 * Mix       h_i[d] = x[n, d P + i],  p = softmax(logits[n,:]),  w = (1-eps) p + eps/P,  y = sum_i(w_i h_i)
 * Backward  dh_i = w_i dy,  dlogits_i = (1-eps) p_i (g_i - sum_j(p_j g_j)),  g_i = dy . h_i
 * Silu      y = x s,  s = 1/(1 + e^(-x));  dx = dy s (1 + x (1-s)),  1-s = 1/(1 + e^x)
 * Rounding  streams, and the columns of a dot product, in order
 * Called    ref/ops/ops.def lists the operations.  ref/model/streams.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

void FN(streams_beside)(struct tensor X, struct tensor H)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(H), P = tensor_cols(X) / D;
    assert(tensor_rows(H) == P * N && tensor_cols(X) == D * P);

    #pragma omp parallel for schedule(static) if (N * D * P > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < P; i++)
            for (int64_t d = 0; d < D; d++) DATA(X)[(n * D + d) * P + i] = CONST_DATA(H)[(i * N + n) * D + d];
}

void FN(streams_beside_backward_input)(struct tensor dH, struct tensor dX)
{
    const int64_t N = tensor_rows(dX), D = tensor_cols(dH), P = tensor_cols(dX) / D;
    assert(tensor_rows(dH) == P * N && tensor_cols(dX) == D * P);

    #pragma omp parallel for schedule(static) if (N * D * P > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < P; i++)
            for (int64_t d = 0; d < D; d++) DATA(dH)[(i * N + n) * D + d] = CONST_DATA(dX)[(n * D + d) * P + i];
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

static void FN(softmax)(real *restrict p, const real *restrict x, int64_t n)
{
    real top = x[0], total = 0;
    for (int64_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) total += p[i] = REAL_FN(exp)(x[i] - top);
    for (int64_t i = 0; i < n; i++) p[i] /= total;
}

void FN(streams_mix_forward)(struct tensor Y, struct tensor p, struct tensor logits, struct tensor X, double smoothing)
{
    const int64_t N = tensor_rows(Y), D = tensor_cols(Y), P = tensor_cols(p);
    const real eps = (real)smoothing;
    assert(tensor_rows(X) == N && tensor_cols(X) == D * P && tensor_rows(logits) == N && tensor_cols(logits) == P);

    #pragma omp parallel for schedule(static) if (N * D * P > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict q = DATA(p) + n * P;
        FN(softmax)(DATA(p) + n * P, CONST_DATA(logits) + n * P, P);
        for (int64_t d = 0; d < D; d++) {
            const real *restrict h = CONST_DATA(X) + (n * D + d) * P;
            real y = 0;
            for (int64_t i = 0; i < P; i++) y += (q[i] * (1 - eps) + eps / (real)P) * h[i];
            DATA(Y)[n * D + d] = y;
        }
    }
}

/* The gradient of one row's X, and in g those of the weights of its streams. */
static void FN(mix_row_backward)(real *restrict dx, real *restrict g, const real *restrict dy, const real *restrict q,
                                 const real *restrict x, int64_t D, int64_t P, real eps)
{
    for (int64_t i = 0; i < P; i++) g[i] = 0;
    for (int64_t d = 0; d < D; d++)
        for (int64_t i = 0; i < P; i++) {
            dx[d * P + i] = (q[i] * (1 - eps) + eps / (real)P) * dy[d];
            g[i] += dy[d] * x[d * P + i];
        }
}

void FN(streams_mix_backward_input)(struct tensor dX, struct tensor dlogits, struct tensor dY, struct tensor p,
                                    struct tensor X, double smoothing)
{
    const int64_t N = tensor_rows(dY), D = tensor_cols(dY), P = tensor_cols(p);
    const real eps = (real)smoothing;
    assert(tensor_cols(X) == D * P && tensor_count(dX) == tensor_count(X) && tensor_cols(dlogits) == P);

    #pragma omp parallel for schedule(static) if (N * D * P > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict q = CONST_DATA(p) + n * P;
        real *restrict g = DATA(dlogits) + n * P, mean = 0;
        FN(mix_row_backward)(DATA(dX) + n * D * P, g, CONST_DATA(dY) + n * D, q, CONST_DATA(X) + n * D * P, D, P, eps);
        for (int64_t i = 0; i < P; i++) mean += q[i] * g[i];
        for (int64_t i = 0; i < P; i++) g[i] = (1 - eps) * q[i] * (g[i] - mean);
    }
}

/* ---- silu -------------------------------------------------------------------------------------------------------- */

void FN(silu_forward)(struct tensor Y, struct tensor X)
{
    const int64_t n = tensor_count(X);
    #pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) DATA(Y)[i] = CONST_DATA(X)[i] / (1 + FN(fast_exp)(-CONST_DATA(X)[i]));
}

void FN(silu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X)
{
    const int64_t n = tensor_count(X);
    #pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        const real x = CONST_DATA(X)[i], s = 1 / (1 + FN(fast_exp)(-x)), rest = 1 / (1 + FN(fast_exp)(x));
        DATA(dX)[i] = CONST_DATA(dY)[i] * s * (1 + x * rest);
    }
}
