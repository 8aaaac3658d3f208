/* exact.h -- lesson 21: what exact.c defines.  README.md explains it.
 *
 * All numbers are finite, and smaller than 2^40.  There are at most 2^20 of
 * them.  The arrays are only read.  The judge calls these functions through
 * calls.c (`orrery learn`).
 */
#ifndef EXACT_H
#define EXACT_H

#include "course.h"

/** The exponent g of the grid for these numbers: the least g such that every
 *  |x[i]| is below 2^(g + {BITS: 40|38}).  If there is no number but 0, the
 *  result is -{BITS: 40|38}. */
int grid_exponent(const float *x, int n);

/** The sum of integers q[i]: q[i] is the integer nearest to x[i] / 2^g; in the
 *  middle between two it is the even one. */
int64_t grid_sum(const float *x, int n, int g);

/** The float that is nearest to sum 2^g, rounded once; in the middle between
 *  two it is the even one. */
float grid_round(int64_t sum, int g);

/** As so many devices add: they agree on one grid for all n numbers.  Device i
 *  sums its block, block_of(n, parts, i), on that grid.  Then the devices' sums
 *  are added, and the finished sum is rounded once. */
float exact_parts(const float *x, int n, int parts);

#endif
