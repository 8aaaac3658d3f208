/* exact_sum.h -- sums of squares without rounding: the same bits in whatever order, and however the terms are dealt
 * out.
 *
 * A sum is one long fixed-point number with a place for every bit that a finite double can have, so that adding rounds
 * nothing.  What several devices have added up is put together by adding these numbers, in any order; only the value
 * that is read at the end is rounded.
 *
 * Source   U. W. Kulisch, "Very fast and exact accumulation of products", doi:10.1007/s00607-010-0127-7
 * Rounding the square of an fp64 number is rounded once, alone, to fp64; squares of narrower numbers are exact
 */
#ifndef ORRERY_EXACT_SUM_H
#define ORRERY_EXACT_SUM_H

#include "ref/numeric/tensor.h"

/* 2046 exponents, 53 bits of the largest, and room for 2^46 terms, in limbs of 32 bits. */
enum { EXACT_LIMBS = 67 };

struct exact_sum {
    int64_t limb[EXACT_LIMBS];       /* limb i counts 2^(32 i - 1074); 0 .. 2^32 - 1 each, the last one may be larger */
    double infinite;                    /* the sum of the terms that are not finite; 0: there are none */
};

/** s += the sum of x^2.  @param x  any floating-point format; up to 2^45 elements. */
void exact_add_squares(struct exact_sum *s, struct tensor x);

/** s += t. */
void exact_add(struct exact_sum *s, const struct exact_sum *t);

/** The sum, rounded; infinity or NaN if a term was, or if it is too large. */
double exact_value(const struct exact_sum *);

/** As numbers that may be added up element by element, without rounding, over up to 2^20 sums; and back.
 *  @param number  shape [EXACT_LIMBS]. */
void exact_to_numbers(const struct exact_sum *, double number[]);
void exact_from_numbers(struct exact_sum *, const double number[]);

#endif
