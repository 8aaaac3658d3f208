/* attention.cuh -- what the attention kernels share: which keys a query sees, dropout's factors, tiles.
 *
 * A block of 4 TILE threads has a tile of TILE rows; thread t owns row t / 4 of it, and of that row's other side (keys,
 * queries or columns of a head) the t % 4-th quarter.  So every sum of an element is one thread's, in order: keys, or
 * queries, tile by tile, from the first to the last.
 */
#ifndef ORRERY_CUDA_ATTENTION_CUH
#define ORRERY_CUDA_ATTENTION_CUH

#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"
#include "emulated_devices/device/cuda/kernels/philox.cuh"
#include <math.h>

/* What query q of sequence b sees. */
__device__ __forceinline__ bool sees(const struct cuda_attention &a, int64_t b, int64_t q, int64_t k)
{
    if (a.window > 0 && k + a.window <= q) return false;
    if (a.mask == NULL) return k <= q;
    const int32_t *range = a.mask + ((a.mask_each ? b * a.S : 0) + q) * 2 * a.ranges;
    for (int64_t i = 0; i < a.ranges; i++)
        if (k >= range[2 * i] && k < range[2 * i + 1]) return true;
    return false;
}

/* Dropout's factor of a probability, as ref/ops/attention_rows.c numbers them. */
template <typename W>
__device__ __forceinline__ W drop_factor(const struct cuda_attention &a, int64_t b, int64_t h, int64_t q, int64_t k)
{
    const int64_t each = a.each, first = ((a.drop.row0 + b) * a.drop.cols + a.drop.col0 + h) * each;
    const int64_t row = first + q / each * a.drop.cols * each + q % each;
    return random_uniform(a.drop.seed, a.drop.stream, (uint64_t)(row * each + k % each)) >= a.drop.p
               ? (W)(1 / (1 - a.drop.p)) : (W)0;
}

/* A score, from a product of a query and a key; and the derivative where the score is s. */
template <typename W> __device__ __forceinline__ W score_of(const struct cuda_attention &a, W product)
{
    const W s = (W)a.scale * product, cap = (W)a.cap;
    return cap > 0 ? cap * tanh_of(s / cap) : s;
}
template <typename W> __device__ __forceinline__ W score_slope(const struct cuda_attention &a, W s)
{
    const W t = a.cap > 0 ? s / (W)a.cap : 0;
    return (1 - t) * (1 + t);
}

/* Rows first .. of a matrix, `ld` apart, as a tile [TILE, A] in shared memory; zeros behind the last of S rows. */
template <int TILE, typename W, typename T>
__device__ void load_tile(W *tile, const T *from, int64_t ld, int64_t first, int64_t S, int64_t A)
{
    for (int64_t i = threadIdx.x; i < TILE * A; i += 4 * TILE) {
        const int64_t row = first + i / A;
        tile[i] = row < S ? widen(from[row * ld + i % A]) : (W)0;
    }
}

/* The same, transposed: [A, TILE + 1].  The odd width spreads a column over the banks. */
template <int TILE, typename W, typename T>
__device__ void load_transposed(W *tile, const T *from, int64_t ld, int64_t first, int64_t S, int64_t A)
{
    for (int64_t i = threadIdx.x; i < TILE * A; i += 4 * TILE) {
        const int64_t row = first + i / A;
        tile[i % A * (TILE + 1) + i / A] = row < S ? widen(from[row * ld + i % A]) : (W)0;
    }
}

template <int TILE, typename W> __device__ void clear_tile(W *tile, int64_t A)
{
    for (int64_t i = threadIdx.x; i < TILE * A; i += 4 * TILE) tile[i] = 0;
}

/* sum[c] = row . column c of a transposed tile, for the thread's quarter of the columns. */
template <int TILE, typename W>
__device__ __forceinline__ void products(W (&sum)[TILE / 4], const W *row, const W *transposed, int64_t A)
{
    for (int c = 0; c < TILE / 4; c++) sum[c] = 0;
    for (int64_t i = 0; i < A; i++) {
        const W x = row[i], *y = transposed + i * (TILE + 1);
        for (int c = 0; c < TILE / 4; c++) sum[c] += x * y[c];
    }
}

/* The keys that a tile of queries from q0 on may see, in whole tiles. */
template <int TILE> __device__ __forceinline__ int64_t first_key(const struct cuda_attention &a, int64_t q0)
{
    return a.window > 0 && q0 + 1 > a.window ? (q0 + 1 - a.window) / TILE * TILE : 0;
}
template <int TILE> __device__ __forceinline__ int64_t end_key(const struct cuda_attention &a, int64_t q0)
{
    return a.mask == NULL && q0 + TILE < a.S ? q0 + TILE : a.S;
}
/* And the queries that may see a tile of keys from k0 on. */
template <int TILE> __device__ __forceinline__ int64_t first_query(const struct cuda_attention &a, int64_t k0)
{
    return a.mask == NULL ? k0 : 0;
}
template <int TILE> __device__ __forceinline__ int64_t end_query(const struct cuda_attention &a, int64_t k0)
{
    return a.window > 0 && k0 + TILE - 1 + a.window < a.S ? k0 + TILE - 1 + a.window : a.S;
}

/* The largest tile whose shared memory is no more than 48 KiB, which every GPU has; the smallest if none is. */
template <typename BYTES> static int tile_for(BYTES bytes)
{
    for (int tile = 32; tile > 4; tile /= 2)
        if (bytes((size_t)tile) <= (size_t)48 << 10) return tile;
    return 4;
}

#endif
