/* float16.h -- the two 16-bit floating-point formats, bit for bit: bf16 (8 bits of exponent, 7 of fraction) and fp16
 * (5, 10).
 *
 * Numbers are stored as 16 bits; arithmetic uses the widened numbers.  Rules for both formats:
 *   - widening is exact, also for subnormals, infinities and signed zeros;
 *   - narrowing rounds once, to nearest, ties to even, from fp32 and from fp64; a number that is too large becomes
 *     infinity, one that is too small becomes a subnormal or a zero of the same sign;
 *   - a NaN stays a NaN with its sign: widening keeps all bits of its payload; narrowing keeps the leading bits and
 *     sets the quiet bit, so that a payload of zeros does not make an infinity.
 * The code uses integers and two fp32 additions, which are exact by construction, so that compilers vectorise loops.
 * The rounding mode must be to nearest, and subnormal fp32 numbers must not be flushed to zero.
 *
 * Source  fp16: IEEE 754-2008 binary16; bf16: the upper half of binary32.  Narrowing fp64 through fp32, rounded to odd,
 *         is one rounding: S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms
 *         using rounding to odd", doi:10.1109/TC.2007.70819, theorem 1.
 * Called  Files of ref/numeric/, device/, ref/io/ and other rooms call these functions.
 * Errors  none
 *
 * To add a family of formats (fp8, microscaling), add a file like this one, and its lines in dtype.h and convert.c.
 */
#ifndef ORRERY_FLOAT16_H
#define ORRERY_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x) { uint32_t b; memcpy(&b, &x, sizeof b); return b; }
static inline float float_of_bits(uint32_t b) { float x; memcpy(&x, &b, sizeof x); return x; }
static inline uint64_t double_bits(double x) { uint64_t b; memcpy(&b, &x, sizeof b); return b; }
static inline double double_of_bits(uint64_t b) { double x; memcpy(&x, &b, sizeof x); return x; }

/* ---- fp32, as bits, to and from 16 bits -------------------------------------------------------------------------- */

static inline uint32_t bf16_widen(uint16_t h) { return (uint32_t)h << 16; }

/* Adds half of the last kept place, minus one, plus the last kept bit: it carries exactly if nearest-even rounds up. */
static inline uint16_t bf16_narrow(uint32_t x)
{
    const uint32_t number = (x + 0x7fff + (x >> 16 & 1)) >> 16, nan = x >> 16 | 0x40;
    return (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? nan : number);
}

/* 112 = 127 - 15 shifts the exponent.  A subnormal's fraction is placed below the leading bit of 2^-14; then 2^-14 is
 * subtracted. */
static inline uint32_t fp16_widen(uint16_t h)
{
    const uint32_t x = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t normal = x + (112u << 23), special = x | 0x7f800000;
    const uint32_t subnormal = float_bits(float_of_bits(x + (113u << 23)) - 0x1p-14f);
    return (x >= 0x0f800000 ? special : x >= 0x00800000 ? normal : subnormal) | (uint32_t)(h & 0x8000) << 16;
}

/* The last place of fp16's subnormals is 2^-24, as of fp32 numbers from 0.5 to 1: adding 0.5 rounds to it. */
static inline uint16_t fp16_narrow(uint32_t b)
{
    const uint32_t x = b & 0x7fffffff;
    const uint32_t normal = (x + 0xfff + (x >> 13 & 1) - (112u << 23)) >> 13;
    const uint32_t subnormal = float_bits(float_of_bits(x) + 0.5f) - 0x3f000000;
    const uint32_t nan = 0x7e00 | (x >> 13 & 0x3ff);
    const uint32_t number = x < 0x38800000 ? subnormal : x < 0x47800000 ? normal : 0x7c00;
    return (uint16_t)((x > 0x7f800000 ? nan : number) | (b >> 16 & 0x8000));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* fp64 as fp32 bits.  An inexact result is rounded to odd: its last bit is 1, so no 16-bit rounding takes it for a tie.
 * NaN by the rule above. */
static inline uint32_t float_bits_to_odd(double x)
{
    const float f = (float)x;
    const uint32_t nearest = float_bits(f);
    const double back = f, size = x < 0 ? -x : x, back_size = back < 0 ? -back : back;
    const uint32_t odd = (nearest - (back_size > size)) | (back != x);
    const uint64_t b = double_bits(x);
    const uint32_t nan = (uint32_t)(b >> 32 & 0x80000000) | 0x7fc00000 | (uint32_t)(b >> 29 & 0x7fffff);
    return x != x ? nan : odd;
}

/* fp32 as fp64.  A NaN is converted as bits: the processor would set its quiet bit. */
static inline double double_of_float_bits(uint32_t b)
{
    const double number = float_of_bits(b);
    const uint64_t nan = (uint64_t)(b & 0x80000000) << 32 | 0x7ff0000000000000 | (uint64_t)(b & 0x7fffff) << 29;
    return (b & 0x7fffffff) > 0x7f800000 ? double_of_bits(nan) : number;
}

static inline float bf16_to_float(uint16_t h) { return float_of_bits(bf16_widen(h)); }
static inline float fp16_to_float(uint16_t h) { return float_of_bits(fp16_widen(h)); }
static inline double bf16_to_double(uint16_t h) { return double_of_float_bits(bf16_widen(h)); }
static inline double fp16_to_double(uint16_t h) { return double_of_float_bits(fp16_widen(h)); }

static inline uint16_t bf16_from_float(float x) { return bf16_narrow(float_bits(x)); }
static inline uint16_t fp16_from_float(float x) { return fp16_narrow(float_bits(x)); }
static inline uint16_t bf16_from_double(double x) { return bf16_narrow(float_bits_to_odd(x)); }
static inline uint16_t fp16_from_double(double x) { return fp16_narrow(float_bits_to_odd(x)); }

#endif
