/* rounding.c -- bounds of rounding errors of sums, worst or likely.
 *
 * check/recompute/ and cli/check_found.c compare recomputed results with these bounds.  No function here can fail.
 */
#include "ref/numeric/rounding.h"
#include <math.h>

struct rounding rounding_of(enum dtype results, enum dtype sums, int parts)
{
    const enum dtype adds = sums == DTYPE_COUNT ? dtype_wide(results) : sums;
    return (struct rounding){ .results = results,
                              .sum = dtype_unit(adds),
                              .store = dtype_unit(results),
                              .tiny = dtype_step(results) / 2,
                              .sum_tiny = dtype_step(adds) / 2,
                              .lost = 1 / dtype_largest(results),
                              .sum_lost = 1 / dtype_largest(adds),
                              .parts = parts,
                              .gradient_parts = parts };
}

double rounding_of_sum(double u, int64_t n)
{
    /* The worst case grows with n u, the likely one (random errors) with sqrt(n) u; the smaller holds. */
    const double nu = (double)n * u, worst = nu < 1 ? nu / (1 - nu) : INFINITY,
                 likely = ROUNDING_LAMBDA * sqrt((double)n) * u;
    return worst < likely ? worst : likely;
}

double rounding_of_terms(double u, double sum, double root)
{
    return u * (sum < ROUNDING_LAMBDA * root ? sum : ROUNDING_LAMBDA * root);
}
