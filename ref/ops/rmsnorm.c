/* rmsnorm: scales each row to mean square 1, then multiplies by base + w: base is 0; in a
 * Gemma it is 1, and its weights start at 0.
 *
 * Source    B. Zhang, R. Sennrich, "Root mean square layer normalization", arXiv:1910.07467
 * Shapes    X, Y, dX, dY [N,D];  w, dw [D];  rstd [N]
 * Forward   rstd = 1/sqrt(mean_row(X^2) + eps),  Y = X * rstd * (base + w)
 * Backward  g   = dY * (base + w),  xhat = X * rstd
 *           dX  = rstd * (g - xhat * mean_row(g * xhat))
 *           dw += sum_rows(dY * xhat)
 * Rounding  as layernorm: row sums in LANES interleaved partial sums; weight gradients sum rows in order.
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c, ref/model/forward.c and ref/model/latent.c
 *           call them for one device; devices call each as dev_NAME (device/compute.h).  No function returns an error
 *           code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(rmsnorm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                         double eps)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), from = (real)base;
    assert(tensor_count(Y) == N * D && tensor_count(w) == D && tensor_count(rstd) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D;
        real *restrict y = DATA(Y) + n * D;
        const real r = 1 / REAL_FN(sqrt)(FN(row_mean_square)(x, 0, D) + (real)eps);
        for (int64_t d = 0; d < D; d++) y[d] = x[d] * r * (from + W[d]);
        DATA(rstd)[n] = r;
    }
}

void FN(rmsnorm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                double base, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), from = (real)base;
    assert(tensor_count(dX) == N * D && tensor_count(dY) == N * D && tensor_count(w) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D, *restrict dy = CONST_DATA(dY) + n * D;
        real *restrict dx = DATA(dX) + n * D;
        const real r = CONST_DATA(rstd)[n];
#ifdef SUMS_EXACTLY
        real mean, unused;
        FN(row_mean_slopes)(dy, W, from, x, 0, r, D, &unused, &mean);
#else
        real lane[LANES] = { 0 };
        int64_t at = 0;
        for (; at + LANES <= D; at += LANES)
            for (int l = 0; l < LANES; l++) lane[l] += dy[at + l] * (from + W[at + l]) * (x[at + l] * r);
        for (int l = 0; at < D; at++, l++) lane[l] += dy[at] * (from + W[at]) * (x[at] * r);
        const real mean = FN(fold)(lane) / (real)D;
#endif
        for (int64_t d = 0; d < D; d++) dx[d] = r * (dy[d] * (from + W[d]) - x[d] * r * mean);
    }
}

#ifndef SUMS_EXACTLY
/* Threads split the columns, so that every column's sum runs over the rows in order. */
void FN(rmsnorm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(dw) == D && tensor_count(dY) == N * D && tensor_count(rstd) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        real sum[COLUMN_BLOCK] = { 0 };
        for (int64_t n = 0; n < N; n++) {
            const real *restrict x = CONST_DATA(X) + n * D + d0, *restrict dy = CONST_DATA(dY) + n * D + d0;
            const real r = CONST_DATA(rstd)[n];
            for (int64_t d = 0; d < width; d++) sum[d] += dy[d] * (x[d] * r);
        }
        for (int64_t d = 0; d < width; d++) DATA(dw)[d0 + d] += sum[d];
    }
}
#endif
