/* cuda_bf16.h -- our own bfloat16, bit for bit as ref/numeric/float16.h rounds; NVIDIA's names for what kernels use. */
#ifndef ORRERY_EMULATED_CUDA_BF16_H
#define ORRERY_EMULATED_CUDA_BF16_H

#include "ref/numeric/float16.h"

struct __nv_bfloat16 { uint16_t bits; };

static inline float __bfloat162float(__nv_bfloat16 x) { return bf16_to_float(x.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16{ bf16_from_float(x) }; }
static inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
static inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16{ bf16_from_double(x) }; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16{ x }; }

/* Rounded twice, which is the same as once, as in cuda_fp16.h: 24 >= 2 * 8 + 2. */
#define ARITHMETIC(name, sign)                                                                                         \
    static inline __nv_bfloat16 name(__nv_bfloat16 a, __nv_bfloat16 b)                                                 \
    {                                                                                                                  \
        return __float2bfloat16_rn(__bfloat162float(a) sign __bfloat162float(b));                                      \
    }                                                                                                                  \
    static inline __nv_bfloat16 operator sign(__nv_bfloat16 a, __nv_bfloat16 b) { return name(a, b); }
ARITHMETIC(__hadd, +)
ARITHMETIC(__hsub, -)
ARITHMETIC(__hmul, *)
ARITHMETIC(__hdiv, /)
#undef ARITHMETIC
static inline __nv_bfloat16 &operator+=(__nv_bfloat16 &a, __nv_bfloat16 b) { return a = a + b; }

#endif
