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

#include "ref/exact/terms.h"
#include "ref/ops/real.h"

/* A sum of squares is a multiple of 2^-60 below 2^67. */
enum { SQUARES_DOWN = 40 };
#define SQUARES_UP 0x1p40f
#define SQUARES_UNIT 0x1p-40

static inline int64_t terms_from(int64_t i, int64_t n) { return n - i < TERMS_AT_ONCE ? n - i : TERMS_AT_ONCE; }

static inline fixed_sum row_sum(const real *x, int64_t n)
{
    fixed_sum sum = 0;
    for (int64_t i = 0; i < n; i += TERMS_AT_ONCE) sum = fixed_add(sum, term_row(x + i, terms_from(i, n), 0));
    return sum;
}

/* The sum of (x - mu)^2, times 2^-SQUARES_DOWN. */
static inline fixed_sum row_squares(const real *x, real mu, int64_t n)
{
    fixed_sum sum = 0;
    real square[TERMS_AT_ONCE];
    for (int64_t i0 = 0; i0 < n; i0 += TERMS_AT_ONCE) {
        const int64_t count = terms_from(i0, n);
        for (int64_t i = 0; i < count; i++) square[i] = (x[i0 + i] - mu) * (x[i0 + i] - mu);
        sum = fixed_add(sum, term_row(square, count, SQUARES_DOWN));
    }
    return sum;
}

/* The sums of g = dy (base + w), and of g xhat, xhat = (x - mu) r. */
static inline void row_normed(const real *dy, const real *w, real base, const real *x, real mu, real r, int64_t n,
                              fixed_sum *g, fixed_sum *gx)
{
    real term[TERMS_AT_ONCE], times[TERMS_AT_ONCE];
    *g = *gx = 0;
    for (int64_t i0 = 0; i0 < n; i0 += TERMS_AT_ONCE) {
        const int64_t count = terms_from(i0, n);
        for (int64_t i = 0; i < count; i++) {
            term[i] = dy[i0 + i] * (base + w[i0 + i]);
            times[i] = term[i] * ((x[i0 + i] - mu) * r);
        }
        *g = fixed_add(*g, term_row(term, count, 0)), *gx = fixed_add(*gx, term_row(times, count, 0));
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
