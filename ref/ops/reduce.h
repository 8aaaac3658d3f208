/* reduce.h -- sums in a fixed order that vectorise: LANES interleaved partial sums, then added pairwise.  Files of
 * ref/ops/ and ref/optim/ call these functions.  No function returns an error code. */
#ifndef ORRERY_REDUCE_H
#define ORRERY_REDUCE_H

#include "ref/ops/real.h"

enum {
    LANES = 16,                 /* partial sums; fixed, so that the bits do not depend on the machine's vector width */
    COLUMN_BLOCK = 64,          /* columns that a thread sums at a time */
    PARALLEL_FROM = 16384,      /* elements; below this, starting threads costs more time than it saves */
};

static inline real FN(fold)(real lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static inline real FN(sum)(const real *restrict x, int64_t n)
{
    real lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += x[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += x[i];
    return FN(fold)(lane);
}

static inline real FN(sum_centred_squares)(const real *restrict x, real mu, int64_t n)
{
    real lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += (x[i + l] - mu) * (x[i + l] - mu);
    for (int l = 0; i < n; i++, l++) lane[l] += (x[i] - mu) * (x[i] - mu);
    return FN(fold)(lane);
}

static inline real FN(dot)(const real *restrict x, const real *restrict y, int64_t n)
{
    real lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += x[i + l] * y[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += x[i] * y[i];
    return FN(fold)(lane);
}

/* Both row sums of layernorm's backward: of g = dy (base + w), and of g xhat, xhat = (x - mu) r.  gcc 12 vectorises
 * two sums in one loop only with the pragma. */
static inline void FN(normed_sums)(const real *restrict dy, const real *restrict w, real base, const real *restrict x,
                                   real mu, real r, int64_t n, real *sum_g, real *sum_gx)
{
    real lane_g[LANES] = { 0 }, lane_gx[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        #pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const real g = dy[i + l] * (base + w[i + l]);
            lane_g[l] += g;
            lane_gx[l] += g * ((x[i + l] - mu) * r);
        }
    }
    for (int l = 0; i < n; i++, l++) {
        const real g = dy[i] * (base + w[i]);
        lane_g[l] += g;
        lane_gx[l] += g * ((x[i] - mu) * r);
    }
    *sum_g = FN(fold)(lane_g);
    *sum_gx = FN(fold)(lane_gx);
}

/* Norms need the mean of a row, the mean of (x - mu)^2, and those of g and of g xhat. */
#ifdef SUMS_EXACTLY
#include "ref/exact/row_stats.h"

static inline real FN(row_mean)(const real *x, int64_t n) { return row_stat(row_sum(x, n)) * (1 / (real)n); }

static inline real FN(row_mean_square)(const real *x, real mu, int64_t n)
{
    return row_stat(row_squares(x, mu, n)) * SQUARES_UP / (real)n;
}

static inline void FN(row_mean_slopes)(const real *dy, const real *w, real base, const real *x, real mu, real r,
                                       int64_t n, real *mean_g, real *mean_gx)
{
    fixed_sum g, gx;
    row_normed(dy, w, base, x, mu, r, n, &g, &gx);
    *mean_g = row_stat(g) / (real)n, *mean_gx = row_stat(gx) / (real)n;
}
#else
static inline real FN(row_mean)(const real *x, int64_t n) { return FN(sum)(x, n) / (real)n; }

static inline real FN(row_mean_square)(const real *x, real mu, int64_t n)
{
    return FN(sum_centred_squares)(x, mu, n) / (real)n;
}

static inline void FN(row_mean_slopes)(const real *dy, const real *w, real base, const real *x, real mu, real r,
                                       int64_t n, real *mean_g, real *mean_gx)
{
    real sum_g, sum_gx;
    FN(normed_sums)(dy, w, base, x, mu, r, n, &sum_g, &sum_gx);
    *mean_g = sum_g / (real)n, *mean_gx = sum_gx / (real)n;
}
#endif

/* The maximum; -infinity for no elements.  A NaN may be ignored. */
static inline real FN(max)(const real *restrict x, int64_t n)
{
    real lane[LANES];
    int64_t i = 0;
    for (int l = 0; l < LANES; l++) lane[l] = -(real)INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; i < n; i++, l++) lane[l] = x[i] > lane[l] ? x[i] : lane[l];
    for (int l = 1; l < LANES; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

#endif
