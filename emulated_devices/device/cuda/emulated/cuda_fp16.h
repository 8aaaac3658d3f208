/* cuda_fp16.h -- our own half, bit for bit as ref/numeric/float16.h rounds; NVIDIA's names for what kernels use.
 * kernels/launch.cuh includes this file for every kernel. */
#ifndef ORRERY_EMULATED_CUDA_FP16_H
#define ORRERY_EMULATED_CUDA_FP16_H

#include "emulated_devices/device/cuda/emulated/sixteen.h"

NUMBER_OF_16_BITS(__half, fp16)
typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half x) { return x; }
static inline __half __float2half_rn(float x) { return x; }
static inline __half __float2half(float x) { return x; }
static inline __half __double2half(double x) { return x; }
static inline __half __int2half_rn(int x) { return x; }
static inline int __half2int_rn(__half x) { return (int)rintf(x); }
static inline unsigned short __half_as_ushort(__half x) { return x.bits; }
static inline __half __ushort_as_half(unsigned short x) { return emulated::of_bits((__half *)0, x); }

static inline __half2 __float2half2_rn(float x) { return { x, x }; }
static inline __half2 __floats2half2_rn(float x, float y) { return { x, y }; }
static inline __half2 __float22half2_rn(float2 x) { return { x.x, x.y }; }
static inline float2 __half22float2(__half2 x) { return { x.x, x.y }; }
static inline __half2 __half2half2(__half x) { return { x, x }; }
static inline __half2 __halves2half2(__half x, __half y) { return { x, y }; }
static inline __half __low2half(__half2 x) { return x.x; }
static inline __half __high2half(__half2 x) { return x.y; }

#endif
