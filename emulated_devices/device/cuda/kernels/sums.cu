/* sums: column sums for a bias, the sum of squares for a norm, a number times all (ref/ops/linear.c, sums.c).
 *
 * The sum of squares:
 *   1  naive: every thread adds its number to one place by an atomic: they queue, and the order differs in every run
 *   2  a block adds its numbers in a tree in shared memory, then adds to that place: fewer wait, the order still differs
 *   3  (this) each thread first adds many numbers in a register; a tree for each block; blocks store what they have, and
 *      somebody else adds that in order
 *      In double; a block adds SPAN numbers, thread t those at t, t + 128, ...; the block's 128 sums are added in a
 *      tree of halves; the host adds the blocks in order
 *
 * Its exact form has no order, because it adds whole numbers: for each exponent the squares of fractions of 24 bits.
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
    sum = tree_sum(part, sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* ---- without rounding -------------------------------------------------------------------------------------------- */

/* Most numbers of a block have an exponent near its first number's: for NEAR of them each thread has a sum of its own;
 * only the others meet at one place, by an atomic. */
enum { NEAR = 8, EXPONENTS = 256 };

template <typename T> __global__ void exact_squares(unsigned long long *bins, const T *X, int64_t n)
{
    __shared__ unsigned long long bin[EXPONENTS], near_by[NEAR][SQUARE_THREADS];
    const int64_t first = (int64_t)blockIdx.x * SPAN, end = first + SPAN < n ? first + SPAN : n;
    const int t = threadIdx.x, top = (int)(__float_as_uint(widen(X[first])) >> 23 & 255) + 2;
    for (int e = t; e < EXPONENTS; e += SQUARE_THREADS) bin[e] = 0;
    UNROLL for (int k = 0; k < NEAR; k++) near_by[k][t] = 0;
    __syncthreads();
    for (int64_t i = first + t; i < end; i += SQUARE_THREADS) {
        const unsigned bits = __float_as_uint(widen(X[i])), e = bits >> 23 & 255;
        const unsigned long long fraction = (bits & 0x7fffff) | (unsigned)(e > 0) << 23, square = fraction * fraction;
        const int below = top - (int)e;
        if (below >= 0 && below < NEAR) near_by[below][t] += square;
        else if (square > 0) atomicAdd(&bin[e], square);
    }
    __syncthreads();
    if (t < NEAR) {
        unsigned long long sum = 0;
        for (int other = 0; other < SQUARE_THREADS; other++) sum += near_by[t][other];
        if (sum > 0) atomicAdd(&bin[top - t], sum);
    }
    __syncthreads();
    for (int e = t; e < EXPONENTS; e += SQUARE_THREADS) {
        if (bin[e] == 0) continue;
        atomicAdd(&bins[e], bin[e] & 0xffffffffu);
        atomicAdd(&bins[EXPONENTS + e], bin[e] >> 32);
    }
}

template <typename T> struct scale_numbers {
    T *y;
    const T *x;
    wide<T> a;
    __device__ void operator()(int64_t i) const { store(&y[i], widen(x[i]) * a); }
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

void cuda_exact_squares(enum dtype t, unsigned long long *bins, const void *X, int64_t n)
{
    if (n == 0) return;
    const dim3 grid((unsigned)blocks_of(n, SPAN));
    if (t == F32) LAUNCH(exact_squares<float>, grid, dim3(SQUARE_THREADS), 0, bins, (const float *)X, n);
    if (t == BF16) LAUNCH(exact_squares<bf16>, grid, dim3(SQUARE_THREADS), 0, bins, (const bf16 *)X, n);
    if (t == F16) LAUNCH(exact_squares<fp16>, grid, dim3(SQUARE_THREADS), 0, bins, (const fp16 *)X, n);
}

void cuda_scale(enum dtype t, void *Y, const void *X, int64_t n, double a)
{
    BY_FORMAT(t, for_each(n, scale_numbers<T>{ (T *)Y, (const T *)X, (wide<T>)a }));
}
