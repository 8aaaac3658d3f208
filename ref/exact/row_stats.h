/* row_stats.h -- sums over the columns of a row, for norms, added without rounding: devices may have any of them.
 *
 * Each term is computed in fp32, as in ref/ops/; the finished sum rounds once, to fp32.  Squares have a window of their
 * own: they are added times 2^-SQUARES_DOWN, so that rows of large numbers have sums, too.
 *
 * ref/ops/layernorm.c, layernorm_parts.c, rmsnorm.c and head_norm.c include this file for the arithmetic of ref/exact/
 * (real.h: X32).  No function can fail.
 */
#ifndef ORRERY_ROW_STATS_H
#define ORRERY_ROW_STATS_H

#include "ref/numeric/fixed_sum.h"
#include "ref/ops/real.h"

/* A sum of squares is a multiple of 2^-60 below 2^67. */
enum { SQUARES_DOWN = 40 };
#define SQUARES_UP 0x1p40f
#define SQUARES_UNIT 0x1p-40

static inline fixed_sum row_sum(const real *x, int64_t n)
{
    fixed_sum sum = 0;
    for (int64_t i = 0; i < n; i++) sum = fixed_add(sum, fixed_of((double)x[i]));
    return sum;
}

/* The sum of (x - mu)^2, times 2^-SQUARES_DOWN. */
static inline fixed_sum row_squares(const real *x, real mu, int64_t n)
{
    fixed_sum sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const real square = (x[i] - mu) * (x[i] - mu);
        sum = fixed_add(sum, fixed_of((double)square * SQUARES_UNIT));
    }
    return sum;
}

/* The sums of g = dy (base + w), and of g xhat, xhat = (x - mu) r. */
static inline void row_normed(const real *dy, const real *w, real base, const real *x, real mu, real r, int64_t n,
                              fixed_sum *g, fixed_sum *gx)
{
    *g = *gx = 0;
    for (int64_t i = 0; i < n; i++) {
        const real term = dy[i] * (base + w[i]);
        *g = fixed_add(*g, fixed_of((double)term));
        *gx = fixed_add(*gx, fixed_of((double)(term * ((x[i] - mu) * r))));
    }
}

/* A finished sum, rounded. */
static inline real row_stat(fixed_sum sum) { return (real)fixed_to_odd(sum); }

/* A statistic of one row, which may be a part of a sum: EXACT. */
static inline void row_stat_put(struct tensor stat, int64_t i, fixed_sum sum)
{
    if (stat.dtype == EXACT) fixed_put(stat.data, i, sum);
    else DATA(stat)[i] = row_stat(sum);
}

#endif
