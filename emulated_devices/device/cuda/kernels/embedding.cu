/* embedding: a row of a table for each token, and its gradient (ref/ops/embedding.c).
 *
 * Backward adds the rows of equal ids in order of tokens, without atomics:
 *   1  naive: atomicAdd of each row.  Another order, and other bits, in every run
 *   2  a thread for each element of the table looks through all tokens: the order is fixed, the work is V times too much
 *   3  (this) first each token finds the next one with its id, and whether it is the first; then the threads of a first
 *      token follow the links, and add
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"

template <typename T> struct look_up {
    T *y;
    const int32_t *ids;
    const T *w;
    int64_t D, rows, first;
    bool accumulate;
    __device__ void operator()(int64_t i) const
    {
        const int64_t row = ids[i / D] - first;
        const bool here = row >= 0 && row < rows;
        if (!accumulate) store(&y[i], here ? widen(w[row * D + i % D]) : (wide<T>)0);
        else if (here) store(&y[i], widen(y[i]) + widen(w[row * D + i % D]));
    }
};

/* next[n]: the next token with its id, or -1; is_first[n]: whether none before it has. */
__global__ void link_tokens(int32_t *next, int32_t *is_first, const int32_t *ids, int64_t N)
{
    const int64_t n = thread_number();
    if (n >= N) return;
    const int32_t id = ids[n];
    int64_t m = n + 1, before = n - 1;
    while (m < N && ids[m] != id) m++;
    while (before >= 0 && ids[before] != id) before--;
    next[n] = m < N ? (int32_t)m : -1;
    is_first[n] = before < 0;
}

template <typename T, typename G> struct add_rows {
    G *dw;
    const T *dy;
    const int32_t *ids, *next, *is_first;
    int64_t D, rows, first;
    __device__ void operator()(int64_t i) const
    {
        const int64_t n = i / D, d = i % D, row = ids[n] - first;
        if (!is_first[n] || row < 0 || row >= rows) return;
        wide<T> sum = widen(dw[row * D + d]);
        for (int64_t m = n; m >= 0; m = next[m]) sum += widen(dy[m * D + d]);
        store(&dw[row * D + d], sum);
    }
};

void cuda_embedding_forward(enum dtype t, void *Y, const int32_t *ids, const void *W, int64_t N, int64_t D,
                            int64_t rows, int64_t first, bool accumulate)
{
    BY_FORMAT(t, for_each(N * D, look_up<T>{ (T *)Y, ids, (const T *)W, D, rows, first, accumulate }));
}

void cuda_embedding_backward_weight(enum dtype t, enum dtype g, void *dW, const void *dY, const int32_t *ids,
                                    int32_t *links, int64_t N, int64_t D, int64_t rows, int64_t first)
{
    if (N == 0) return;
    LAUNCH(link_tokens, A_THREAD_EACH(N), 0, links, links + N, ids, N);
    BY_FORMATS(t, g, for_each(N * D, add_rows<T, G>{ (G *)dW, (const T *)dY, ids, links, links + N, D, rows, first }));
}
