/* fixed_sum.h -- sums that do not round: the numbers of EXACT tensors.
 *
 * A number is an integer of 128 bits times 2^-100, so additions are exact and their order leaves no trace in the bits:
 * any device may add any part of a sum, at any time.  A sum rounds once, when the finished sum is stored in a tensor's
 * own format.  A sum that is not finite, or reaches 2^27, is FIXED_NONE, whatever is added to it, and rounds to NaN.
 *
 * Source    U. W. Kulisch, "Very fast and exact accumulation of products", doi:10.1007/s00607-010-0127-7, cut to one
 *           window of exponents
 * Rounding  fixed_of rounds to the nearest multiple of 2^-100, ties to even; the conversions from a sum round once to
 *           their format, ties to even
 *
 * ref/exact/ computes such sums, device/reduction.c adds them between devices, and convert.c rounds them.  No function
 * here can fail.
 */
#ifndef ORRERY_FIXED_SUM_H
#define ORRERY_FIXED_SUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef __int128 fixed_sum;
__extension__ typedef unsigned __int128 fixed_bits;

enum { FIXED_UNIT = -100 };             /* exponent of the last bit of a sum */

/* The lowest number of 128 bits stands for a sum that does not exist. */
#define FIXED_NONE ((fixed_sum)((fixed_bits)1 << 127))

/* Why a sum does not exist: it went beyond the bits there are, or has a term that is not finite. */
enum fixed_loss { FIXED_ALL_THERE, FIXED_BEYOND, FIXED_NOT_FINITE };

/** Note in this process that a sum does not exist, unless one before does not.  Any thread may call.
 *  @return FIXED_NONE. */
fixed_sum fixed_lose(enum fixed_loss why) __attribute__((cold, noinline));

/** Why the first sum since the last call does not exist, in this process. */
enum fixed_loss fixed_loss_take(void);

static inline fixed_sum fixed_add(fixed_sum a, fixed_sum b)
{
    fixed_sum sum;
    if (a == FIXED_NONE || b == FIXED_NONE) return fixed_lose(FIXED_NOT_FINITE);
    return __builtin_add_overflow(a, b, &sum) ? fixed_lose(FIXED_BEYOND) : sum;
}

/* The sum m 2^exponent.  The caller guarantees exponent >= FIXED_UNIT. */
static inline fixed_sum fixed_scaled(int64_t m, int exponent)
{
    const int shift = exponent - FIXED_UNIT;
    const int64_t size = m < 0 ? -m : m;
    if (m == 0) return 0;
    /* The product must stay below 2^127. */
    if (shift >= 127 || (shift > 63 && size >> (127 - shift) != 0)) return fixed_lose(FIXED_BEYOND);
    return (fixed_sum)((fixed_bits)(fixed_sum)m << shift);
}

/* The sum that is nearest to x. */
static inline fixed_sum fixed_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    /* x = fraction 2^exponent, with 53 bits of a fraction; numbers below 2^-1022 have no hidden bit, and round to 0. */
    const int exponent = (int)(bits >> 52 & 2047) - 1075;
    const int64_t size = (int64_t)((bits & 0xfffffffffffff) | (uint64_t)1 << 52), fraction = bits >> 63 ? -size : size;
    if (exponent == 2047 - 1075) return fixed_lose(FIXED_NOT_FINITE);
    /* All bits of x lie above the unit, or x is rounded to the unit. */
    return exponent >= FIXED_UNIT ? fixed_scaled(fraction, exponent) : (fixed_sum)(int64_t)rint(x * 0x1p100);
}

/* 2^exponent, of a normal number. */
static inline double fixed_power(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A double whose last bit is 1 where bits below it are lost: rounding it to fewer bits rounds the sum itself once. */
static inline double fixed_to_odd(fixed_sum sum)
{
    if (sum == FIXED_NONE) return (double)NAN;
    const bool negative = sum < 0;
    fixed_bits size = negative ? (fixed_bits)0 - (fixed_bits)sum : (fixed_bits)sum;
    const uint64_t high = (uint64_t)(size >> 64), low = (uint64_t)size;
    if (size == 0) return 0;
    const int bits = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low), lost = bits > 53 ? bits - 53 : 0;
    uint64_t kept = (uint64_t)(size >> lost);
    kept |= ((fixed_bits)kept << lost) != size;
    const double x = (double)(int64_t)kept * fixed_power(lost + FIXED_UNIT);
    return negative ? -x : x;
}

/* The sum rounded to fp64. */
static inline double fixed_to_double(fixed_sum sum)
{
    return sum == FIXED_NONE ? (double)NAN : (double)sum * 0x1p-100;
}

/** Element i of an array as a double, rounded; and an element from a double. */
double fixed_get(const void *sums, int64_t i);
void fixed_set(void *sums, int64_t i, double x);

/* Element i of an array of sums that need not be aligned. */
static inline fixed_sum fixed_at(const void *sums, int64_t i)
{
    fixed_sum sum;
    memcpy(&sum, (const char *)sums + i * (int64_t)sizeof sum, sizeof sum);
    return sum;
}

static inline void fixed_put(void *sums, int64_t i, fixed_sum sum)
{
    memcpy((char *)sums + i * (int64_t)sizeof sum, &sum, sizeof sum);
}

#endif
