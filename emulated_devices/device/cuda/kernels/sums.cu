/* sums: column sums for a bias, the sum of squares for a norm, a number times all (ref/ops/linear.c, sums.c).
 *
 * The sum of squares:
 *   1  naive: every thread adds its number to one place by an atomic: they queue, and the order differs in every run
 *   2  a block adds its numbers in a tree in shared memory, then adds to that place: fewer wait, the order still differs
 *   3  (this) each thread first adds many numbers in a register; a tree for each block; blocks store what they have, and
 *      somebody else adds that in order
 *
 * In double; a block adds SPAN numbers, thread t those at t, t + 128, ...; the block's 128 sums are
 * added in a tree of halves; the host adds the blocks in order.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

template <typename T, typename G> __global__ void column_sums(G *db, const T *dY, int64_t N, int64_t D)
{
    typedef wide<T> W;
    __shared__ W part[GROUPS][COLUMNS];
    const int64_t d = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const W sum = over_column<W>(part, N, d < D, [=](int64_t n) { return widen(dY[n * D + d]); });
    if (threadIdx.y == 0 && d < D) store(&db[d], widen(db[d]) + sum);
}

enum { SQUARE_THREADS = 128, SPAN = CUDA_SQUARES_SPAN };

template <typename T> __global__ void sum_of_squares(double *sums, const T *X, int64_t n)
{
    __shared__ double part[SQUARE_THREADS];
    const int64_t first = (int64_t)blockIdx.x * SPAN, end = first + SPAN < n ? first + SPAN : n;
    double sum = 0;
    for (int64_t i = first + threadIdx.x; i < end; i += SQUARE_THREADS) {
        const double x = (double)widen(X[i]);
        sum += x * x;
    }
    part[threadIdx.x] = sum;
    for (unsigned half = SQUARE_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

template <typename T> struct scale_numbers {
    T *y;
    wide<T> a;
    __device__ void operator()(int64_t i) const { store(&y[i], widen(y[i]) * a); }
};

void cuda_column_sums(enum dtype t, enum dtype g, void *db, const void *dY, int64_t N, int64_t D)
{
    if (N == 0 || D == 0) return;
    BY_FORMATS(t, g, LAUNCH((column_sums<T, G>), COLUMN_GRID(D), 0, (G *)db, (const T *)dY, N, D));
}

void cuda_sum_of_squares(enum dtype t, double *sums, const void *X, int64_t n)
{
    if (n == 0) return;
    BY_FORMAT(t, LAUNCH(sum_of_squares<T>, dim3((unsigned)blocks_of(n, SPAN)), dim3(SQUARE_THREADS), 0, sums,
                        (const T *)X, n));
}

void cuda_scale(enum dtype t, void *Y, int64_t n, double a)
{
    BY_FORMAT(t, for_each(n, scale_numbers<T>{ (T *)Y, (wide<T>)a }));
}
