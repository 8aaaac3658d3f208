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

/* Arithmetic on halves rounds each result: exact in fp32, then once. */
static inline __half __hadd(__half a, __half b) { return __float2half_rn(__half2float(a) + __half2float(b)); }
static inline __half __hmul(__half a, __half b) { return __float2half_rn(__half2float(a) * __half2float(b)); }
static inline __half operator+(__half a, __half b) { return __hadd(a, b); }
static inline __half operator*(__half a, __half b) { return __hmul(a, b); }
static inline __half &operator+=(__half &a, __half b) { return a = a + b; }

#endif
