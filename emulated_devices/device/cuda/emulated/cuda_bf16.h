/* cuda_bf16.h -- our own bfloat16, bit for bit as ref/numeric/float16.h rounds; NVIDIA's names for what kernels use.
 * kernels/launch.cuh includes this file for every kernel. */
#ifndef ORRERY_EMULATED_CUDA_BF16_H
#define ORRERY_EMULATED_CUDA_BF16_H

#include "emulated_devices/device/cuda/emulated/sixteen.h"

NUMBER_OF_16_BITS(__nv_bfloat16, bf16)
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat16 nv_bfloat16;

static inline float __bfloat162float(__nv_bfloat16 x) { return x; }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
static inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
static inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return emulated::of_bits((__nv_bfloat16 *)0, x); }

static inline __nv_bfloat162 __float2bfloat162_rn(float x) { return { x, x }; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return { x, y }; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return { x.x, x.y }; }
static inline float2 __bfloat1622float2(__nv_bfloat162 x) { return { x.x, x.y }; }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return { x, x }; }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return { x, y }; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }

#endif
