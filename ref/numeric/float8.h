/* float8.h -- the 8-bit floating-point format of released weights, e4m3: a sign, 4 bits of exponent, 3 of fraction.
 *
 * Source  P. Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433, table 1: the exponent's bias is 7,
 *         there is no infinity, and a NaN is all bits of exponent and fraction.
 * Errors  none
 *
 * ref/io/safetensors_box.c reads released weights with these functions.
 */
#ifndef ORRERY_FLOAT8_H
#define ORRERY_FLOAT8_H

#include <math.h>
#include <stdint.h>

/** The number of a code; exact. */
static inline double e4m3_to_double(uint8_t code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 127) == 127) return code & 128 ? -NAN : NAN;
    const double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return code & 128 ? -size : size;
}

#endif
