/* float16_lanes.h -- float16.h's conversions between fp64 and 16 bits, for loops: in lanes of 64 bits from beginning to
 * end, which is five times as fast as by way of fp32.  The bits are the same.
 *
 * Only convert.c includes this file.  No function returns an error code.
 */
#ifndef ORRERY_FLOAT16_LANES_H
#define ORRERY_FLOAT16_LANES_H

#include "ref/numeric/float16.h"

/* The magnitude in 16 bits of one in fp64, a.  From `least` on, exponents are of normal numbers, from `most` on of too
 * large ones; the last place of subnormals is that of doubles near `magic`. */
static inline uint64_t lane_narrow(uint64_t a, int dropped, uint64_t bias, uint64_t least, uint64_t most, double magic,
                                   uint64_t infinity)
{
    const uint64_t half = ((uint64_t)1 << (dropped - 1)) - 1;
    const uint64_t normal = (a - (bias << 52) + half + (a >> dropped & 1)) >> dropped;
    const uint64_t subnormal = double_bits(double_of_bits(a) + magic) - double_bits(magic);
    const uint64_t quiet = (uint64_t)1 << (51 - dropped), payload = a >> dropped & (2 * quiet - 1);
    const uint64_t number = a < least << 52 ? subnormal : normal < infinity ? normal : infinity;
    return a > (uint64_t)0x7ff << 52 ? infinity | quiet | payload : a >= most << 52 ? infinity : number;
}

/* Widens as fp16_widen does.  x: the magnitude where fp64 has exponent and fraction. */
static inline double lane_widen(uint64_t x, uint64_t bias, uint64_t infinity, uint64_t sign)
{
    const uint64_t first = (bias + 1) << 52, normal = x + (bias << 52), special = x | (uint64_t)0x7ff << 52;
    const uint64_t subnormal = double_bits(double_of_bits(x + first) - double_of_bits(first));
    const uint64_t size = x >= infinity << 52 ? special : x >= (uint64_t)1 << 52 ? normal : subnormal;
    return double_of_bits(size | sign << 63);
}

/* 896 = 1023 - 127 and 1008 = 1023 - 15 shift exponents; 2^-81 is 2^52 last places of bf16's subnormals, 2^28 of
 * fp16's. */
static inline double bf16_lane_to_double(uint16_t h)
{
    return lane_widen((uint64_t)(h & 0x7fff) << 45, 896, 255, h >> 15);
}

static inline double fp16_lane_to_double(uint16_t h)
{
    return lane_widen((uint64_t)(h & 0x7fff) << 42, 1008, 31, h >> 15);
}

static inline uint16_t bf16_lane_from_double(double x)
{
    const uint64_t b = double_bits(x);
    return (uint16_t)(lane_narrow(b & 0x7fffffffffffffff, 45, 896, 897, 1151, 0x1p-81, 0x7f80) | (b >> 48 & 0x8000));
}

static inline uint16_t fp16_lane_from_double(double x)
{
    const uint64_t b = double_bits(x);
    return (uint16_t)(lane_narrow(b & 0x7fffffffffffffff, 42, 1008, 1009, 1039, 0x1p28, 0x7c00) | (b >> 48 & 0x8000));
}

#endif
