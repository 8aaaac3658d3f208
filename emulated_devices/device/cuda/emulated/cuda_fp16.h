/* cuda_fp16.h -- our own half, bit for bit as ref/numeric/float16.h rounds; NVIDIA's names for what kernels use. */
#ifndef ORRERY_EMULATED_CUDA_FP16_H
#define ORRERY_EMULATED_CUDA_FP16_H

#include "ref/numeric/float16.h"

struct __half { uint16_t bits; };
typedef __half half;

static inline float __half2float(__half x) { return fp16_to_float(x.bits); }
static inline __half __float2half_rn(float x) { return __half{ fp16_from_float(x) }; }
static inline __half __float2half(float x) { return __float2half_rn(x); }
static inline __half __double2half(double x) { return __half{ fp16_from_double(x) }; }
static inline unsigned short __half_as_ushort(__half x) { return x.bits; }
static inline __half __ushort_as_half(unsigned short x) { return __half{ x }; }

/* Results are rounded to fp32, then to half: the same as once, since 24 >= 2 * 11 + 2 places.
 * Source  S. A. Figueroa, "When is double rounding innocuous?", doi:10.1145/221332.221334. */
#define ARITHMETIC(name, sign)                                                                                         \
    static inline __half name(__half a, __half b) { return __float2half_rn(__half2float(a) sign __half2float(b)); }    \
    static inline __half operator sign(__half a, __half b) { return name(a, b); }
ARITHMETIC(__hadd, +)
ARITHMETIC(__hsub, -)
ARITHMETIC(__hmul, *)
ARITHMETIC(__hdiv, /)
#undef ARITHMETIC
static inline __half &operator+=(__half &a, __half b) { return a = a + b; }

#endif
