/* cross entropy in pieces, of a slice of the vocabulary (ref/ops/cross_entropy.c).  Rows as rows.cuh orders them.
 *
 * The sum of exp(x - max) over a row of the vocabulary:
 *   1  naive: a thread a row, the largest first, then the sum: it reads the row twice, and its neighbours read elsewhere
 *   2  (this) warps share rows, as rows.cuh says; still two passes, since other slices' largest numbers come between
 *
 * The loss is summed in double by one block: thread t adds tokens t, t + 256, ...; then a tree of halves.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"
#include <math.h>

template <typename T> __global__ void row_maximum(wide<T> *top, const T *logits, int64_t N, int64_t V)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block();
    logits += at.first * V;
    over_rows(room, at.count, V, (W)-INFINITY, largest(), [=](int64_t r, int64_t v) { return widen(logits[r * V + v]); });
    if (me < at.count) top[at.first + me] = room.total[me];
}

template <typename T>
__global__ void softmax_sums(wide<T> *total, wide<T> *hit, const T *logits, const wide<T> *top, const int32_t *labels,
                             int64_t N, int64_t V, int64_t first)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block(), n = at.first + me;
    logits += at.first * V, top += at.first;
    over_rows(room, at.count, V, (W)0, added(), [=](int64_t r, int64_t v) {
        return exp_of(widen(logits[r * V + v]) - top[r]);
    });
    if (me >= at.count) return;
    const int64_t column = labels[n] - first;
    total[n] = room.total[me];
    hit[n] = column >= 0 && column < V ? widen(logits[me * V + column]) : (W)0;
}

enum { LOSS_THREADS = 256 };

template <typename W>
__global__ void loss_of(double *loss, const W *total, const W *top, const W *hit, const int32_t *labels, int64_t N,
                        int ignore)
{
    __shared__ double part[LOSS_THREADS];
    double sum = 0;
    for (int64_t n = threadIdx.x; n < N; n += LOSS_THREADS)
        if (labels[n] != ignore) sum += log((double)total[n]) + (double)top[n] - (double)hit[n];
    sum = tree_sum(part, sum);
    if (threadIdx.x == 0) *loss = sum;
}

template <typename T> struct logit_slope {
    T *dx;
    const T *x;
    const wide<T> *total, *top;
    const int32_t *labels;
    int64_t V, first;
    int ignore;
    wide<T> scale;
    __device__ void operator()(int64_t i) const
    {
        const int64_t n = i / V, v = i % V;
        if (labels[n] == ignore) return store(&dx[i], (wide<T>)0);
        const wide<T> p = exp_of(widen(x[i]) - top[n]) * (scale / total[n]);
        store(&dx[i], labels[n] - first == v ? p - scale : p);
    }
};

void cuda_cross_entropy_max(enum dtype t, void *top, const void *logits, int64_t N, int64_t V)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(row_maximum<T>, ROW_GRID(N), 0, (wide<T> *)top, (const T *)logits, N, V));
}

void cuda_cross_entropy_sums(enum dtype t, void *total, void *hit, const void *logits, const void *top,
                             const int32_t *labels, int64_t N, int64_t V, int64_t first)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(softmax_sums<T>, ROW_GRID(N), 0, (wide<T> *)total, (wide<T> *)hit, (const T *)logits,
                        (const wide<T> *)top, labels, N, V, first));
}

void cuda_cross_entropy_loss(enum dtype t, double *loss, const void *total, const void *top, const void *hit,
                             const int32_t *labels, int64_t N, int ignore)
{
    BY_FORMAT(t, LAUNCH(loss_of<wide<T>>, dim3(1), dim3(LOSS_THREADS), 0, loss, (const wide<T> *)total,
                        (const wide<T> *)top, (const wide<T> *)hit, labels, N, ignore));
}

void cuda_cross_entropy_backward(enum dtype t, void *dlogits, const void *logits, const void *total, const void *top,
                                 const int32_t *labels, int64_t N, int64_t V, int64_t first, int ignore, double scale)
{
    BY_FORMAT(t, for_each(N * V, logit_slope<T>{ (T *)dlogits, (const T *)logits, (const wide<T> *)total,
                                                 (const wide<T> *)top, labels, V, first, ignore, (wide<T>)scale }));
}
