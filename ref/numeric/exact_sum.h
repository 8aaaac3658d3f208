/* exact_sum.h -- sums of squares without rounding: the same bits in any order and for any distribution over devices.
 *
 * A sum is a long fixed-point number with a place for every bit of a finite double, so additions do not round.  The
 * partial sums of several devices are added in any order; only the final value is rounded.
 *
 * Source   U. W. Kulisch, "Very fast and exact accumulation of products", doi:10.1007/s00607-010-0127-7
 * Errors   none
 * Rounding the square of an fp64 number is rounded once to fp64, before it is added; narrower formats: exact
 *
 * model/trainer.c and schemes/data/ sum the squares of gradients with these functions, before they clip.
 */
#ifndef ORRERY_EXACT_SUM_H
#define ORRERY_EXACT_SUM_H

#include "ref/numeric/tensor.h"

/* In limbs of 32 bits: 2046 exponents, 53 bits of the largest, and room for 2^46 terms. */
enum { EXACT_LIMBS = 67 };

struct exact_sum {
    int64_t limb[EXACT_LIMBS];          /* limb i has the unit 2^(32 i - 1074) and is below 2^32, except the last */
    double infinite;                    /* sum of the terms that are not finite; 0: none */
};

/** s += the sum of x^2.  @param x  any floating-point format; up to 2^45 elements. */
void exact_add_squares(struct exact_sum *exact_sum, struct tensor x);

/** s += t. */
void exact_add(struct exact_sum *s, const struct exact_sum *t);

/** The sum, rounded; infinity or NaN if a term is, infinity if it is too large. */
double exact_value(const struct exact_sum *);

/** Convert to doubles, and back.  Up to 2^20 such arrays can be added element by element without rounding.
 *  @param number  shape [EXACT_LIMBS]. */
void exact_to_numbers(const struct exact_sum *, double number[]);
void exact_from_numbers(struct exact_sum *, const double number[]);

#endif
