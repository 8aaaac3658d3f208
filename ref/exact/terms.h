/* terms.h -- exact sums of many fp32 terms: fp64 adds their upper bits, and then their lower bits, without rounding.
 *
 * A term becomes a sum as fixed_of makes it, rounded to a multiple of 2^-100.  The upper part of a term is a multiple
 * of a grid that the largest term decides, and the rest a multiple of a second grid.  So TERMS_AT_ONCE parts have less
 * than 53 bits together, and any order of additions has the same bits.  Terms whose bits lie below both grids, or that
 * are not finite, are added one by one.
 *
 * Source    S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I", doi:10.1137/050645671: how a
 *           number is cut by adding a power of two
 * row_stats.h adds along rows, tokens.c along columns.  No function can fail.
 */
#ifndef ORRERY_EXACT_TERMS_H
#define ORRERY_EXACT_TERMS_H

#include "ref/numeric/fixed_sum.h"

/* How many terms are added at once, and of how many columns. */
enum { TERMS_AT_ONCE = 128, TERM_COLUMNS = 64 };
/* A term has UPPER_BITS above its first grid, and the rest LOWER_BITS above the second: both and the logarithm of
 * TERMS_AT_ONCE are below 53.  Terms from 2^TERM_MOST on might add up to the end of the window. */
enum { UPPER_BITS = 44, LOWER_BITS = 45, TERM_MOST = 18 };

/* The exponents of both grids, for terms of which the largest has these bits without its sign, times 2^-down. */
struct term_grids { int first, second; bool usual; };

static inline uint32_t term_size(const float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits & 0x7fffffff;
}

static inline struct term_grids term_grids_of(uint32_t most, int down)
{
    const int e = (int)(most >> 23) - 126 - down,
              first = e - UPPER_BITS > FIXED_UNIT ? e - UPPER_BITS : FIXED_UNIT,
              second = first - LOWER_BITS > FIXED_UNIT ? first - LOWER_BITS : FIXED_UNIT;
    return (struct term_grids){ first, second, most >> 23 < 255 && e <= TERM_MOST };
}

/* Adding and then subtracting this number rounds a term to a grid. */
static inline double term_shift(int grid) { return 1.5 * fixed_power(52 + grid); }

/* Whether both parts have all bits of the terms.  Those below the unit of sums, of which `rest` may have some, are
 * rounded. */
static inline bool term_parts_whole(struct term_grids g, double rest)
{
    return g.usual && (rest == 0 || g.second == FIXED_UNIT);
}

static inline fixed_sum term_parts_sum(struct term_grids g, double upper, double lower)
{
    return fixed_scaled((int64_t)(upper * fixed_power(-g.first)), g.first)
         + fixed_scaled((int64_t)(lower * fixed_power(-g.second)), g.second);
}

/* The sum of n terms, at most TERMS_AT_ONCE, times 2^-down. */
static inline fixed_sum term_row(const float *x, int64_t n, int down)
{
    uint32_t most = 0;
    double upper = 0, lower = 0, rest = 0;
    for (int64_t i = 0; i < n; i++) most = term_size(x + i) > most ? term_size(x + i) : most;
    const struct term_grids g = term_grids_of(most, down);
    const double scale = fixed_power(-down), first = term_shift(g.first), second = term_shift(g.second);
    /* The order of additions does not matter: none rounds. */
    #pragma omp simd reduction(+ : upper, lower, rest)
    for (int64_t i = 0; i < n; i++) {
        const double term = (double)x[i] * scale, high = (term + first) - first, left = term - high,
                     low = (left + second) - second;
        upper += high, lower += low, rest += fabs(left - low);
    }
    if (term_parts_whole(g, rest)) return term_parts_sum(g, upper, lower);
    fixed_sum sum = 0;
    for (int64_t i = 0; i < n; i++) sum = fixed_add(sum, fixed_of((double)x[i] * scale));
    return sum;
}

/* sums [width] += the sums of each column of x [rows, TERM_COLUMNS], at most TERMS_AT_ONCE rows. */
static inline void term_columns(void *sums, const float *x, int64_t rows, int64_t width)
{
    uint32_t most[TERM_COLUMNS] = { 0 };
    struct term_grids g[TERM_COLUMNS];
    double first[TERM_COLUMNS], second[TERM_COLUMNS], upper[TERM_COLUMNS] = { 0 }, lower[TERM_COLUMNS] = { 0 },
           rest[TERM_COLUMNS] = { 0 };
    for (int64_t n = 0; n < rows; n++)
        for (int64_t d = 0; d < width; d++) {
            const uint32_t size = term_size(x + n * TERM_COLUMNS + d);
            most[d] = size > most[d] ? size : most[d];
        }
    for (int64_t d = 0; d < width; d++)
        g[d] = term_grids_of(most[d], 0), first[d] = term_shift(g[d].first), second[d] = term_shift(g[d].second);
    for (int64_t n = 0; n < rows; n++)
        #pragma omp simd
        for (int64_t d = 0; d < width; d++) {
            const double term = (double)x[n * TERM_COLUMNS + d], high = (term + first[d]) - first[d],
                         left = term - high, low = (left + second[d]) - second[d];
            upper[d] += high, lower[d] += low, rest[d] += fabs(left - low);
        }
    for (int64_t d = 0; d < width; d++) {
        fixed_sum sum = fixed_at(sums, d);
        if (term_parts_whole(g[d], rest[d])) sum = fixed_add(sum, term_parts_sum(g[d], upper[d], lower[d]));
        else for (int64_t n = 0; n < rows; n++) sum = fixed_add(sum, fixed_of((double)x[n * TERM_COLUMNS + d]));
        fixed_put(sums, d, sum);
    }
}

#endif
