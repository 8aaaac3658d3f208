/* sums.h -- lesson 01: what sums.c defines.  README.md explains it.
 *
 * All arithmetic in float, but for sum_bound.  A sum of no numbers is 0.  The
 * arrays are only read.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef SUMS_H
#define SUMS_H

#include "course.h"

/** ((x[0] + x[1]) + x[2]) + ..: one after another. */
float sum_forward(const float *x, int n);

/** A tree: the sum of the first half plus the sum of the second half, each of
 *  them summed in the same way, down to single numbers.  Of an odd number of
 *  numbers the {HALF: first|second} half has one more. */
float sum_pairs(const float *x, int n);

/** As so many devices add: device i sums its block, block_of(n, parts, i), one
 *  number after another.  Then the sums of the devices are added to 0, from the
 *  {ORDER: first device to the last|last device to the first}. */
float sum_parts(const float *x, int n, int parts);

/** How far sum_forward can be from the exact sum: (n-1) 2^-24 (|x[0]| + |x[1]|
 *  + ..), computed in double. */
double sum_bound(const float *x, int n);

/** The sum with an error of about one rounding, however long the vector: what
 *  each addition has lost is added up in a second float, which is added at the
 *  end. */
float sum_careful(const float *x, int n);

#endif
