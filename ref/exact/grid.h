/* grid.h -- numbers as integers on grids of powers of two, so that products and sums of them are exact in fp64.
 *
 * products.c quantises the operands of matrix products by these functions; docs/checking/exact.md has the rule.  No
 * function can fail.
 */
#ifndef ORRERY_EXACT_GRID_H
#define ORRERY_EXACT_GRID_H

#include "ref/exact/rule.h"
#include "ref/numeric/fixed_sum.h"
#include <math.h>

/* The bits of an operand.  In each line they fill the 53 of fp64: a slice and the whole other operand, and the
 * logarithm of how many terms are added at once. */
struct exact_bits {
    int operand, terms;                 /* whose terms belong to one token: slice + operand + log2(terms) */
    int token, spare;                   /* of a sum over tokens: slice + token + spare, which is for the number of
                                         * tokens and the distance of their grids */
    int row, weight;                    /* of attention, rows and a slice of weights: row + weight + log2(TILE) */
};

static inline struct exact_bits exact_bits_of(enum exact_rule rule)
{
    return rule == SUMS_EXACT2 ? (struct exact_bits){ 28, 2048, 28, 11, 28, 19 }
                               : (struct exact_bits){ 22, 512, 21, 11, 22, 25 };
}

/* The finest grids of both operands; their products lie on the grid of fixed_sum.h.  Forward both have the same;
 * backward gradients may be much smaller than weights and activations. */
enum { GRID_FORWARD = -50, GRID_GRADIENT = -64, GRID_BESIDE_GRADIENT = -36 };

/* Exponentials of a row of logits are integers of the first grid, losses of tokens of the second; fp64 adds both
 * without rounding while their sums stay below 2^53 units. */
#define KEY_GRID 0x1p34
#define LOSS_GRID 0x1p28
#define LOSS_MOST (0x1p53 / LOSS_GRID)

/* A row without numbers other than 0, and one with an infinity or a NaN, have no grid. */
enum { GRID_ZERO = INT32_MIN, GRID_NONE = INT32_MAX };

/* The exponent of the grid for numbers of which `top` is the largest size: top < 2^(grid + bits), or finer grids are
 * cut off at `finest`. */
static inline int grid_of(double top, int bits, int finest)
{
    int exponent;
    if (!(top < (double)INFINITY)) return GRID_NONE;
    if (top == 0) return GRID_ZERO;
    (void)frexp(top, &exponent);
    return exponent - bits > finest ? exponent - bits : finest;
}

/* The nearest integer, ties to even, of |x| < 2^51: adding 1.5 2^52 leaves no bits for the fraction. */
static inline double grid_round(double x)
{
    const double shift = 0x1.8p52;
    return (x + shift) - shift;
}

#endif
