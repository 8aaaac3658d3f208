/* exp.h -- e^x without branches or calls, so that loops over it vectorise, unlike the C library's expf and exp.
 *
 * Method    x = k ln 2 + r with k an integer and |r| <= ln(2)/2;  e^x = 2^k e^r
 *           k    by adding and subtracting 1.5 * 2^(mantissa bits): the last bits of the sum are k; no conversion is
 *                needed, and a NaN stays a NaN
 *           r    with ln 2 in two parts (W. J. Cody, W. Waite, "Software manual for the elementary functions", 1980):
 *                the high part has so few bits that k times it is exact
 *           e^r  Taylor polynomial; its remainder r^(n+1)/(n+1)! is 2e-10 in fp32 (n = 8), 4e-18 in fp64 (n = 13): far
 *                below the unit roundoff, so a fitted polynomial would not be better
 *           2^k  as two factors of half the exponent: the first product is exact, the second rounds once, also when the
 *                result is subnormal or overflows
 * Error     below 1 ulp; measured over the whole range by tests/ref/test_ops_exp.c
 * Range     every x: 0 below, infinity above, NaN for NaN
 *
 * Files of ref/ops/ call these functions.
 */
#ifndef ORRERY_EXP_H
#define ORRERY_EXP_H

#include "ref/ops/real.h"
#include <string.h>

#if REAL_CAT(REAL_IS_, REAL) != REAL_IS_F64
typedef uint32_t real_bits;
#define EXP_LOWEST (-104.0f)            /* e^x rounds to 0 from here down */
#define EXP_HIGHEST 89.0f               /* and overflows from here up */
#define EXP_LN2_HIGH 0x1.63p-1f
#define EXP_LN2_LOW (-0x1.bd0106p-13f)
enum { MANTISSA_BITS = 23, EXPONENT_BIAS = 127 };
#else
typedef uint64_t real_bits;
#define EXP_LOWEST (-746.0)
#define EXP_HIGHEST 710.0
#define EXP_LN2_HIGH 0x1.62e42feep-1
#define EXP_LN2_LOW 0x1.a39ef35793c76p-33
enum { MANTISSA_BITS = 52, EXPONENT_BIAS = 1023 };
#endif

static inline real FN(power_of_two)(real_bits biased_exponent)
{
    const real_bits bits = biased_exponent << MANTISSA_BITS;
    real x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline real FN(fast_exp)(real x)
{
    const real round = R(1.5) * (real)((real_bits)1 << MANTISSA_BITS);
    x = x < EXP_LOWEST ? EXP_LOWEST : x;            /* a NaN compares false and stays */
    x = x > EXP_HIGHEST ? EXP_HIGHEST : x;

    const real shifted = x * R(0x1.71547652b82fep+0) + round, k = shifted - round;
    const real high = x - k * EXP_LN2_HIGH, low = k * EXP_LN2_LOW, r = high - low;

#if REAL_CAT(REAL_IS_, REAL) != REAL_IS_F64
    real p = R(1.0) / 40320;
#else
    real p = R(1.0) / 6227020800;
    p = p * r + R(1.0) / 479001600;
    p = p * r + R(1.0) / 39916800;
    p = p * r + R(1.0) / 3628800;
    p = p * r + R(1.0) / 362880;
    p = p * r + R(1.0) / 40320;
#endif
    p = p * r + R(1.0) / 5040;
    p = p * r + R(1.0) / 720;
    p = p * r + R(1.0) / 120;
    p = p * r + R(1.0) / 24;
    p = p * r + R(1.0) / 6;
    p = p * r + R(1.0) / 2;
    p = 1 + (high + (r * r * p - low));         /* 1 + r + r^2 p, without the rounding of r */

    /* The bits of shifted are those of round plus k.  An offset makes k positive, so that a shift can halve it. */
    real_bits bits, round_bits;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&round_bits, &round, sizeof bits);
    const real_bits k_raised = bits - round_bits + 2 * (EXPONENT_BIAS + 1), half = k_raised >> 1;
    return p * FN(power_of_two)(half - 1) * FN(power_of_two)(k_raised - half - 1);
}

#endif
