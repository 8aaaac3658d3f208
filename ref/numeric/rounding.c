#include "ref/numeric/rounding.h"
#include <float.h>
#include <math.h>

static double smallest_step(enum dtype t)
{
    switch (t) {
    case F16: return 0x1p-24;
    case BF16: return 0x1p-133;
    case F32: return 0x1p-149;
    default: return DBL_TRUE_MIN;
    }
}

struct rounding rounding_of(enum dtype results, enum dtype sums, int parts)
{
    return (struct rounding){ .results = results,
                              .sum = dtype_unit(sums == DTYPE_COUNT ? dtype_wide(results) : sums),
                              .store = dtype_unit(results),
                              .tiny = smallest_step(results) / 2,
                              .parts = parts };
}

double rounding_of_sum(double u, int64_t n)
{
    const double nu = (double)n * u, worst = nu < 1 ? nu / (1 - nu) : INFINITY,
                 likely = ROUNDING_LAMBDA * sqrt((double)n) * u;
    return worst < likely ? worst : likely;
}

double rounding_of_terms(double u, double sum, double root)
{
    return u * (sum < ROUNDING_LAMBDA * root ? sum : ROUNDING_LAMBDA * root);
}
