/* layernorm in pieces: devices that hold slices of the columns add their sums between the pieces.
 *
 * Source    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", arXiv:1607.06450; over slices: Q. Xu et al.,
 *           "An efficient 2D method for training super-large deep learning models", arXiv:2104.05343, section 3
 * Shapes    X, Y, dX, dY [N,D'], some columns of the whole width D;  w, b [D'];  sum, mean, rstd [N];  sums [2,N]
 * Forward   row_sums             sum = sum_row(X)                      add over slices; mean = sum / D
 *           row_centred_squares  sum = sum_row((X - mean)^2)           add over slices
 *           forward_part         rstd = 1/sqrt(rstd / D + eps): on entry rstd holds that sum
 *                                Y = (X - mean) rstd (base + w) + b;  b: or none
 * Backward  backward_sums        g = dY (base + w);  sums[0] = sum_row(g), sums[1] = sum_row(g xhat)  add over slices
 *           backward_part        dX = rstd (g - sums[0]/D - xhat sums[1]/D)
 *           for the weights, layernorm's function is used: it works on each column separately
 * Rounding  as layernorm: LANES interleaved partial sums in the format, two passes for the variance.  With the sums
 *           of ref/exact/ sums may be EXACT, and those of squares are times 2^-40 (row_stats.h)
 * Called    ref/ops/ops.def lists the operations.  Devices call each as dev_NAME (device/compute.h).  No function
 *           returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(row_sums)(struct tensor sum, struct tensor X)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(sum) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
#ifdef SUMS_EXACTLY
        row_stat_put(sum, n, row_sum(CONST_DATA(X) + n * D, D));
#else
        DATA(sum)[n] = FN(sum)(CONST_DATA(X) + n * D, D);
#endif
}

void FN(row_centred_squares)(struct tensor sum, struct tensor X, struct tensor mean)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(sum) == N && tensor_count(mean) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
#ifdef SUMS_EXACTLY
        row_stat_put(sum, n, row_squares(CONST_DATA(X) + n * D, CONST_DATA(mean)[n], D));
#else
        DATA(sum)[n] = FN(sum_centred_squares)(CONST_DATA(X) + n * D, CONST_DATA(mean)[n], D);
#endif
}

void FN(layernorm_forward_part)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                                struct tensor b, struct tensor mean, int64_t width, double eps)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), *restrict B = tensor_present(b) ? CONST_DATA(b) : NULL, from = (real)base;
    assert(tensor_count(Y) == N * D && tensor_count(w) == D && (B == NULL || tensor_count(b) == D) &&
           tensor_count(mean) == N && tensor_count(rstd) == N);

#pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D;
        real *restrict y = DATA(Y) + n * D;
        const real mu = CONST_DATA(mean)[n];
#ifdef SUMS_EXACTLY
        const real squares = CONST_DATA(rstd)[n] * SQUARES_UP;
#else
        const real squares = CONST_DATA(rstd)[n];
#endif
        const real r = 1 / REAL_FN(sqrt)(squares / (real)width + (real)eps);
        for (int64_t d = 0; d < D && B; d++) y[d] = (x[d] - mu) * r * (from + W[d]) + B[d];
        for (int64_t d = 0; d < D && !B; d++) y[d] = (x[d] - mu) * r * (from + W[d]);
        DATA(rstd)[n] = r;
    }
}

void FN(layernorm_backward_sums)(struct tensor sums, struct tensor dY, struct tensor X, struct tensor w,
                                 double base, struct tensor mean, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w);
    assert(tensor_count(sums) == 2 * N && tensor_count(dY) == N * D && tensor_count(w) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D, *restrict dy = CONST_DATA(dY) + n * D;
#ifdef SUMS_EXACTLY
        fixed_sum g, gx;
        row_normed(dy, W, (real)base, x, CONST_DATA(mean)[n], CONST_DATA(rstd)[n], D, &g, &gx);
        row_stat_put(sums, n, g), row_stat_put(sums, N + n, gx);
#else
        FN(normed_sums)(dy, W, (real)base, x, CONST_DATA(mean)[n], CONST_DATA(rstd)[n], D, DATA(sums) + n,
                        DATA(sums) + N + n);
#endif
    }
}

void FN(layernorm_backward_part)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                 double base, struct tensor mean, struct tensor rstd, struct tensor sums,
                                 int64_t width)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const real *restrict W = CONST_DATA(w), from = (real)base;
    assert(tensor_count(dX) == N * D && tensor_count(dY) == N * D && tensor_count(w) == D &&
           tensor_count(sums) == 2 * N);

#pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(X) + n * D, *restrict dy = CONST_DATA(dY) + n * D;
        real *restrict dx = DATA(dX) + n * D;
        const real mu = CONST_DATA(mean)[n], r = CONST_DATA(rstd)[n];
        const real mean_g = CONST_DATA(sums)[n] / (real)width, mean_gx = CONST_DATA(sums)[N + n] / (real)width;
        for (int64_t d = 0; d < D; d++) dx[d] = r * (dy[d] * (from + W[d]) - mean_g - (x[d] - mu) * r * mean_gx);
    }
}
