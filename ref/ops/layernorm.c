/* layernorm: normalises each row to mean 0 and variance 1, then multiplies by base + w and adds b.
 *
 * Source    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", arXiv:1607.06450
 * Shapes    X, Y, dX, dY [N,D];  w, b, dw, db [D];  mean, rstd [N];  b, db: or none
 *           base: 0, or 1 for layers that keep w from 1
 * Forward   xhat = (X - mean) * rstd         mean, rstd = 1/sqrt(var + eps) over the row; var divides by D
 *           Y    = xhat * (base + w) + b
 * Backward  g    = dY * (base + w)
 *           dX   = rstd * (g - mean_row(g) - xhat * mean_row(g * xhat))
 *           dw  += sum_rows(dY * xhat),  db += sum_rows(dY)
 * Rounding  row sums in the format itself, in LANES interleaved partial sums: a fixed order that vectorises; two passes
 *           for the variance.  Weight gradients sum rows in order.
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(layernorm_forward)(struct tensor Y, struct tensor mean, struct tensor rstd, struct tensor X, struct tensor w,
                           double base, struct tensor b, double eps)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), *restrict B = tensor_present(b) ? CONST_DATA(b) : NULL, from = (real)base;
    assert(tensor_count(Y) == N * D && tensor_count(w) == D && tensor_count(mean) == N && tensor_count(rstd) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D;
        real *restrict y = DATA(Y) + n * D;
        const real mu = FN(row_mean)(x, D);
        const real var = FN(row_mean_square)(x, mu, D);
        const real r = 1 / REAL_FN(sqrt)(var + (real)eps);
        for (int64_t d = 0; d < D && B; d++) y[d] = (x[d] - mu) * r * (from + W[d]) + B[d];
        for (int64_t d = 0; d < D && !B; d++) y[d] = (x[d] - mu) * r * (from + W[d]);
        DATA(mean)[n] = mu;
        DATA(rstd)[n] = r;
    }
}

void FN(layernorm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                  double base, struct tensor mean, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), from = (real)base;
    assert(tensor_count(dX) == N * D && tensor_count(dY) == N * D && tensor_count(w) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D, *restrict dy = CONST_DATA(dY) + n * D;
        real *restrict dx = DATA(dX) + n * D;
        const real mu = CONST_DATA(mean)[n], r = CONST_DATA(rstd)[n];
        real mean_g, mean_gx;
        FN(row_mean_slopes)(dy, W, from, x, mu, r, D, &mean_g, &mean_gx);
        for (int64_t d = 0; d < D; d++) dx[d] = r * (dy[d] * (from + W[d]) - mean_g - (x[d] - mu) * r * mean_gx);
    }
}

#ifndef SUMS_EXACTLY
/* Threads split the columns, so that every column's sum runs over the rows in order. */
void FN(layernorm_backward_weight)(struct tensor dw, struct tensor db, struct tensor dY, struct tensor X,
                                   struct tensor mean, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(dw) == D && (!tensor_present(db) || tensor_count(db) == D) && tensor_count(dY) == N * D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        real sum_w[COLUMN_BLOCK] = { 0 }, sum_b[COLUMN_BLOCK] = { 0 };
        for (int64_t n = 0; n < N; n++) {
            const real *restrict x = CONST_DATA(X) + n * D + d0, *restrict dy = CONST_DATA(dY) + n * D + d0;
            const real mu = CONST_DATA(mean)[n], r = CONST_DATA(rstd)[n];
            for (int64_t d = 0; d < width; d++) {
                sum_w[d] += dy[d] * ((x[d] - mu) * r);
                sum_b[d] += dy[d];
            }
        }
        for (int64_t d = 0; d < width; d++) DATA(dw)[d0 + d] += sum_w[d];
        for (int64_t d = 0; d < width && tensor_present(db); d++) DATA(db)[d0 + d] += sum_b[d];
    }
}
#endif
