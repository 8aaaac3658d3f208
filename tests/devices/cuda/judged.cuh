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

#endif
