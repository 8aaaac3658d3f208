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

static inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}
static inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __float2bfloat16_rn(__bfloat162float(a) * __bfloat162float(b));
}
static inline __nv_bfloat16 &operator+=(__nv_bfloat16 &a, __nv_bfloat16 b) { return a = a + b; }

#endif
