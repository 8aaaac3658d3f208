/* streams: P parallel streams beside each other, and their mean (ref/ops/streams.c). */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

/* Column dP + i of X is column d of stream i. */
template <typename T> struct streams_beside {
    T *x;
    const T *h;
    int64_t N, D, P;
    bool back;
    __device__ void operator()(int64_t at) const
    {
        const int64_t i = at % P, d = at / P % D, n = at / P / D, there = (i * N + n) * D + d;
        if (back) x[there] = h[at];
        else x[at] = h[there];
    }
};

/* A thread a row: P is small. */
template <typename T, typename G>
__global__ void softmax_of_streams(wide<T> *p, const G *logits, int64_t N, int64_t P)
{
    typedef wide<T> W;
    const int64_t n = thread_number();
    if (n >= N) return;
    W top = widen(logits[n * P]), total = 0;
    for (int64_t i = 1; i < P; i++) top = widen(logits[n * P + i]) > top ? widen(logits[n * P + i]) : top;
    for (int64_t i = 0; i < P; i++) total += p[n * P + i] = exp_of(widen(logits[n * P + i]) - top);
    for (int64_t i = 0; i < P; i++) p[n * P + i] /= total;
}

template <typename T> struct mix_streams {
    T *y;
    const wide<T> *p;
    const T *x;
    int64_t D, P;
    wide<T> eps;
    __device__ void operator()(int64_t at) const
    {
        const wide<T> *q = p + at / D * P;
        wide<T> sum = 0;
        for (int64_t i = 0; i < P; i++) sum += (q[i] * (1 - eps) + eps / (wide<T>)P) * widen(x[at * P + i]);
        store(&y[at], sum);
    }
};

template <typename T> struct unmix_streams {
    T *dx;
    const T *dy;
    const wide<T> *p;
    int64_t D, P;
    wide<T> eps;
    __device__ void operator()(int64_t at) const
    {
        const int64_t i = at % P, n = at / P / D;
        store(&dx[at], (p[n * P + i] * (1 - eps) + eps / (wide<T>)P) * widen(dy[at / P]));
    }
};

/* g[n,i] = dY[n] . X[n] of stream i, a block's rows one stream after the other. */
template <typename T>
__global__ void stream_products(wide<T> *g, const T *dY, const T *X, int64_t N, int64_t D, int64_t P)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block();
    dY += at.first * D, X += at.first * D * P;
    for (int64_t i = 0; i < P; i++) {
        over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
            return widen(dY[r * D + d]) * widen(X[(r * D + d) * P + i]);
        });
        if (me < at.count) g[(at.first + me) * P + i] = room.total[me];
    }
}

template <typename T, typename G>
__global__ void stream_slopes(G *dlogits, const wide<T> *g, const wide<T> *p, int64_t N, int64_t P, wide<T> eps)
{
    const int64_t n = thread_number();
    if (n >= N) return;
    wide<T> mean = 0;
    for (int64_t i = 0; i < P; i++) mean += p[n * P + i] * g[n * P + i];
    for (int64_t i = 0; i < P; i++) store(&dlogits[n * P + i], (1 - eps) * p[n * P + i] * (g[n * P + i] - mean));
}

void cuda_streams_beside(enum dtype t, void *X, const void *H, int64_t N, int64_t D, int64_t P, bool back)
{
    BY_FORMAT(t, for_each(N * D * P, streams_beside<T>{ (T *)X, (const T *)H, N, D, P, back }));
}

void cuda_streams_mix_forward(enum dtype t, enum dtype g, void *Y, void *p, const void *logits, const void *X, int64_t N,
                              int64_t D, int64_t P, double smoothing)
{
    if (N == 0) return;
    BY_FORMATS(t, g, LAUNCH((softmax_of_streams<T, G>), A_THREAD_EACH(N), 0, (wide<T> *)p, (const G *)logits, N, P));
    BY_FORMAT(t, for_each(N * D, mix_streams<T>{ (T *)Y, (const wide<T> *)p, (const T *)X, D, P, (wide<T>)smoothing }));
}

void cuda_streams_mix_backward_input(enum dtype t, enum dtype g, void *dX, void *dlogits, void *products,
                                     const void *dY, const void *p, const void *X, int64_t N, int64_t D, int64_t P,
                                     double smoothing)
{
    if (N == 0) return;
    BY_FORMAT(t, for_each(N * D * P, unmix_streams<T>{ (T *)dX, (const T *)dY, (const wide<T> *)p, D, P,
                                                       (wide<T>)smoothing }));
    BY_FORMAT(t, LAUNCH(stream_products<T>, ROW_GRID(N), 0, (wide<T> *)products, (const T *)dY, (const T *)X, N, D, P));
    BY_FORMATS(t, g, LAUNCH((stream_slopes<T, G>), A_THREAD_EACH(N), 0, (G *)dlogits, (const wide<T> *)products,
                            (const wide<T> *)p, N, P, (wide<T>)smoothing));
}
