/* finite.h -- whether numbers are neither NaN nor infinite, without a branch for each.
 *
 * check/report/ asks these functions about every tensor that it compares.  No function returns an error code.
 */
#ifndef ORRERY_FINITE_H
#define ORRERY_FINITE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool all_finite(const double *x, int64_t n)
{
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) finite += fabs(x[i]) <= DBL_MAX;
    return finite == n;
}

#endif
