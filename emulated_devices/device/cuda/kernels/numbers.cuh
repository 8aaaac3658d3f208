/* numbers.cuh -- formats of kernels: T is how numbers are stored, wide<T> how they are computed.
 *
 * bf16 and fp16 are computed in fp32, and each result is rounded once, when it is stored (ref/ops/ops.h).
 */
#ifndef ORRERY_CUDA_NUMBERS_CUH
#define ORRERY_CUDA_NUMBERS_CUH

#include "emulated_devices/device/cuda/kernels/launch.cuh"
#include "ref/numeric/dtype.h"

typedef __nv_bfloat16 bf16;
typedef __half fp16;

template <typename T> struct wide_of { typedef float type; };
template <> struct wide_of<double> { typedef double type; };
template <typename T> using wide = typename wide_of<T>::type;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(fp16 x) { return __half2float(x); }

__device__ __forceinline__ void store(float *y, float x) { *y = x; }
__device__ __forceinline__ void store(double *y, double x) { *y = x; }
__device__ __forceinline__ void store(bf16 *y, float x) { *y = __float2bfloat16_rn(x); }
__device__ __forceinline__ void store(fp16 *y, float x) { *y = __float2half_rn(x); }

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
__device__ __forceinline__ double root_of(double x) { return sqrt(x); }
__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_of(double x) { return tanh(x); }
__device__ __forceinline__ float erfc_of(float x) { return erfcf(x); }
__device__ __forceinline__ double erfc_of(double x) { return erfc(x); }

/* BY_FORMAT(t, f(...)) calls f with T as the type of format t. */
#define BY_FORMAT(t, ...)                                                                                              \
    do {                                                                                                               \
        switch (t) {                                                                                                   \
        case F32: { typedef float T; __VA_ARGS__; } break;                                                             \
        case F64: { typedef double T; __VA_ARGS__; } break;                                                            \
        case BF16: { typedef bf16 T; __VA_ARGS__; } break;                                                             \
        case F16: { typedef fp16 T; __VA_ARGS__; } break;                                                              \
        default: break;                                                                                                \
        }                                                                                                              \
    } while (0)

/* The same, and G is the type of format g: T's own, or fp32 where T has 16 bits. */
#define BY_FORMATS(t, g, ...)                                                                                          \
    do {                                                                                                               \
        if ((g) == (t)) BY_FORMAT(t, typedef T G; __VA_ARGS__);                                                        \
        else if ((t) == BF16) { typedef bf16 T; typedef float G; __VA_ARGS__; }                                        \
        else { typedef fp16 T; typedef float G; __VA_ARGS__; }                                                         \
    } while (0)

static inline int64_t blocks_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* A thread for each of n rows or tokens, where each has little to do. */
enum { SINGLE_THREADS = 128 };
#define A_THREAD_EACH(n) dim3((unsigned)blocks_of(n, SINGLE_THREADS)), dim3(SINGLE_THREADS)
__device__ __forceinline__ int64_t thread_number() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }

/* Four elements a thread: f(i) for each i below n.  For what computes each element by itself.  Threads side by side
 * have elements side by side: a thread's own four are a block apart. */
enum { EACH = 4, EACH_THREADS = 256 };
template <typename F> __global__ void each_element(int64_t n, F f)
{
    const int64_t first = (int64_t)blockIdx.x * (EACH * EACH_THREADS) + threadIdx.x;
    for (int64_t i = first; i < first + EACH * EACH_THREADS && i < n; i += EACH_THREADS) f(i);
}
template <typename F> static void for_each(int64_t n, F f)
{
    if (n > 0) LAUNCH(each_element<F>, dim3((unsigned)blocks_of(n, EACH * EACH_THREADS)), dim3(EACH_THREADS), 0, n, f);
}

#endif
