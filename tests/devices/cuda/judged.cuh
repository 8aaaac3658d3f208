/* judged.cuh -- device memory for the kernels of faulty.cu and tricky.cu. */
#ifndef ORRERY_TESTS_JUDGED_CUH
#define ORRERY_TESTS_JUDGED_CUH

#include "emulated_devices/device/cuda/kernels/launch.cuh"
#include "tests/devices/cuda/judged.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* n numbers of the device, which the host reads and writes by copies. */
template <typename T> struct numbers {
    T *data;
    int n;
    explicit numbers(int n_) : n(n_) { cudaMalloc((void **)&data, (size_t)n * sizeof(T)); }
    ~numbers() { cudaFree(data); }
    void put(const T *from) { cudaMemcpy(data, from, (size_t)n * sizeof(T), cudaMemcpyHostToDevice); }
    void get(T *to) const { cudaMemcpy(to, data, (size_t)n * sizeof(T), cudaMemcpyDeviceToHost); }
    void zero() { cudaMemset(data, 0, (size_t)n * sizeof(T)); }
};

enum { MOST = 4096 };

/* Small whole numbers: sums are exact in any order. */
static inline float small(int i) { return (float)(i * 7 % 13 - 5); }

struct ramp : numbers<float> {
    float host[MOST];
    explicit ramp(int n_) : numbers<float>(n_)
    {
        for (int i = 0; i < n_; i++) host[i] = small(i);
        put(host);
    }
};

static inline int differ(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(a[i] == b[i])) return 1;
    return 0;
}

/* A kernel by itself.  Each gets y and z [256] and n [256], which are zeros, and x [256], and runs alone.
 *
 *   WRONG(name, blocks, threads, says) { ... }     a report says this, and names each line with the word HERE
 *   RIGHT(name, blocks, threads, want) { ... }     there is no report, and y[i] is `want` for i below 256
 */
enum { ROOM = 256 };

struct alone {
    ramp x;
    numbers<float> y, z;
    numbers<unsigned> n;
    float got[ROOM];
    alone() : x(ROOM), y(ROOM), z(ROOM), n(ROOM) { y.zero(), z.zero(), n.zero(); }
};

#define PARAMETERS float *y, float *z, unsigned *n, const float *x
#define KERNEL_ALONE(name, blocks, threads, says, ...)                                                                 \
    static __global__ void name(PARAMETERS);                                                                           \
    static int run_##name(void)                                                                                        \
    {                                                                                                                  \
        alone a;                                                                                                       \
        LAUNCH(name, dim3(blocks), dim3(threads), 0, a.y.data, a.z.data, a.n.data, a.x.data);                          \
        a.y.get(a.got);                                                                                                \
        __VA_ARGS__                                                                                                    \
    }                                                                                                                  \
    static constexpr judged name##_ = { #name, says, run_##name };                                                     \
    static __global__ void name(PARAMETERS)
#define WRONG(name, blocks, threads, says) KERNEL_ALONE(name, blocks, threads, says, return 0;)
#define RIGHT(name, blocks, threads, want)                                                                             \
    KERNEL_ALONE(name, blocks, threads, NULL, {                                                                        \
        const auto wanted = [](const float *v, int i) -> float { return (void)v, (void)i, (float)(want); };            \
        int wrong = 0;                                                                                                 \
        for (int i = 0; i < ROOM; i++) wrong += !(a.got[i] == wanted(a.x.host, i));                                    \
        return wrong;                                                                                                  \
    })
/* A thread's places. */
#define PLACES                                                                                                         \
    const int t = threadIdx.x, b = blockIdx.x, lane = t % 32;                                                          \
    (void)y, (void)z, (void)n, (void)x, (void)t, (void)b, (void)lane

#endif
