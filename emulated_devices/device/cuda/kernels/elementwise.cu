/* elementwise: add, dropout, casts, zeros, and the arithmetic of collectives (ref/ops/add.c, dropout.c, reduction.c). */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"
#include "emulated_devices/device/cuda/kernels/philox.cuh"

template <typename T> struct add_numbers {
    T *y;
    const T *a, *b;
    __device__ void operator()(int64_t i) const { store(&y[i], widen(a[i]) + widen(b[i])); }
};

template <typename T> struct drop_numbers {
    T *y;
    const T *x;
    int64_t cols, row0, col0, whole;    /* of the piece; where it begins in the whole tensor, and that one's columns */
    double p;
    wide<T> grow;
    uint64_t seed, stream;
    __device__ void operator()(int64_t i) const
    {
        const uint64_t index = (uint64_t)((row0 + i / cols) * whole + col0 + i % cols);
        store(&y[i], random_uniform(seed, stream, index) >= p ? widen(x[i]) * grow : 0);
    }
};

/* A double to 16 bits is rounded once. */
__device__ __forceinline__ void store(float *y, double x) { *y = (float)x; }
__device__ __forceinline__ void store(bf16 *y, double x) { *y = __double2bfloat16(x); }
__device__ __forceinline__ void store(fp16 *y, double x) { *y = __double2half(x); }
__device__ __forceinline__ void store(double *y, float x) { *y = (double)x; }

template <typename T, typename X> struct convert_numbers {
    T *y;
    const X *x;
    __device__ void operator()(int64_t i) const { store(&y[i], widen(x[i])); }
};

template <typename T> struct reduce_numbers {
    T *into;
    const T *from;
    enum cuda_reduction how;
    __device__ void operator()(int64_t i) const
    {
        const wide<T> x = widen(into[i]), y = widen(from[i]);
        switch (how) {
        case CUDA_SUM: store(&into[i], x + y); break;
        case CUDA_PRODUCT: store(&into[i], x * y); break;
        case CUDA_MAX: if (y > x || y != y) into[i] = from[i]; break;
        case CUDA_MIN: if (y < x || y != y) into[i] = from[i]; break;
        }
    }
};

template <typename T> struct divide_numbers {
    T *x;
    int by;
    __device__ void operator()(int64_t i) const { store(&x[i], widen(x[i]) / (wide<T>)by); }
};

void cuda_add(enum dtype t, void *Y, const void *A, const void *B, int64_t n)
{
    BY_FORMAT(t, for_each(n, add_numbers<T>{ (T *)Y, (const T *)A, (const T *)B }));
}

void cuda_dropout(enum dtype t, void *Y, const void *X, int64_t rows, int64_t cols, struct cuda_dropout d)
{
    BY_FORMAT(t, for_each(rows * cols,
                          drop_numbers<T>{ (T *)Y, (const T *)X, cols, d.row0, d.col0, d.cols, d.p,
                                           (wide<T>)(1 / (1 - d.p)), d.seed, d.stream }));
}

template <typename T> static void convert_to(T *y, enum dtype from, const void *x, int64_t n)
{
    switch (from) {
    case F32: for_each(n, convert_numbers<T, float>{ y, (const float *)x }); break;
    case F64: for_each(n, convert_numbers<T, double>{ y, (const double *)x }); break;
    case BF16: for_each(n, convert_numbers<T, bf16>{ y, (const bf16 *)x }); break;
    case F16: for_each(n, convert_numbers<T, fp16>{ y, (const fp16 *)x }); break;
    default: break;
    }
}

void cuda_convert(enum dtype to, void *y, enum dtype from, const void *x, int64_t n)
{
    BY_FORMAT(to, convert_to((T *)y, from, x, n));
}

void cuda_reduce(enum dtype t, enum cuda_reduction how, void *into, const void *from, int64_t n)
{
    BY_FORMAT(t, for_each(n, reduce_numbers<T>{ (T *)into, (const T *)from, how }));
}

void cuda_divide(enum dtype t, void *x, int64_t n, int by)
{
    BY_FORMAT(t, for_each(n, divide_numbers<T>{ (T *)x, by }));
}

template <typename T> struct fill_numbers {
    T *y;
    const T *b;
    int64_t D;
    __device__ void operator()(int64_t i) const { y[i] = b[i % D]; }
};

void cuda_fill_rows(enum dtype t, void *Y, const void *b, int64_t N, int64_t D)
{
    BY_FORMAT(t, for_each(N * D, fill_numbers<T>{ (T *)Y, (const T *)b, D }));
}

/* The smallest kernel: whether any runs on this GPU. */
__global__ void probe() { }

void cuda_probe(void) { LAUNCH(probe, dim3(1), dim3(1), 0); }

/* Blocks of columns (ref/ops/columns.c).  A thread an element of X; or, where blocks come to the same place, an element
 * of a block, which adds them in order; or a row, where they overlap in part. */
template <typename T> struct move_columns {
    T *y;
    const T *x;
    int64_t to, from, blocks, elements;         /* that a thread does not share with others: 1, or all */
    struct cuda_blocks at;
    bool add;
    __device__ void operator()(int64_t i) const
    {
        const int64_t columns = at.count / elements, pieces = at.times / blocks * columns;
        const int64_t n = i / pieces, b0 = i % pieces / columns * blocks, c0 = i % columns;
        for (int64_t c = c0; c < c0 + elements; c++)
            for (int64_t b = b0; b < b0 + blocks; b++) {
                T *into = y + n * to + at.y + b * at.y_step + c;
                const T one = x[n * from + at.x + b * at.x_step + c];
                if (!add) *into = one;
                else if (at.y_step != 0) store(into, widen(*into) + widen(one));
                else {
                    wide<T> sum = widen(*into);
                    for (; b < b0 + blocks; b++) sum += widen(x[n * from + at.x + b * at.x_step + c]);
                    store(into, sum);
                }
            }
    }
};

void cuda_columns_move(enum dtype t, void *Y, const void *X, int64_t N, int64_t to, int64_t from, struct cuda_blocks at,
                       bool add)
{
    const bool apart = at.times <= 1 || at.y_step >= at.count || -at.y_step >= at.count, same = at.y_step == 0;
    const int64_t blocks = apart ? 1 : at.times, elements = apart || same ? 1 : at.count;
    if (at.times == 0 || at.count == 0) return;
    BY_FORMAT(t, for_each(N * (at.times / blocks) * (at.count / elements),
                          move_columns<T>{ (T *)Y, (const T *)X, to, from, blocks, elements, at, add }));
}
