/* layernorm: ref/ops/layernorm.c on a GPU.  Two passes for the variance; sums as rows.cuh orders them. */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

template <typename T>
__global__ void layernorm_forward(T *Y, wide<T> *mean, wide<T> *rstd, const T *X, const T *w, const T *b, int64_t N,
                                  int64_t D, wide<T> base, wide<T> eps)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    __shared__ W mu[ROWS];
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block();
    X += at.first * D, Y += at.first * D, mean += at.first, rstd += at.first;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) { return widen(X[r * D + d]); });
    if (me < at.count) mu[me] = mean[me] = room.total[me] / (W)D;
    __syncthreads();
    over_rows(room, at.count, D, (W)0, added(), [&](int64_t r, int64_t d) {
        const W x = widen(X[r * D + d]) - mu[r];
        return x * x;
    });
    for_rows(at.count, D, [&](int64_t r, int64_t d) {
        const W scale = 1 / root_of(room.total[r] / (W)D + eps);
        const W y = (widen(X[r * D + d]) - mu[r]) * scale * (base + widen(w[d]));
        store(&Y[r * D + d], b ? y + widen(b[d]) : y);
    });
    if (me < at.count) rstd[me] = 1 / root_of(room.total[me] / (W)D + eps);
}

template <typename T>
__global__ void layernorm_backward_input(T *dX, const T *dY, const T *X, const T *w, const wide<T> *mean,
                                         const wide<T> *rstd, int64_t N, int64_t D, wide<T> base)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    __shared__ W mean_g[ROWS];
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block();
    X += at.first * D, dY += at.first * D, dX += at.first * D, mean += at.first, rstd += at.first;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
        return widen(dY[r * D + d]) * (base + widen(w[d]));
    });
    if (me < at.count) mean_g[me] = room.total[me] / (W)D;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
        return widen(dY[r * D + d]) * (base + widen(w[d])) * ((widen(X[r * D + d]) - mean[r]) * rstd[r]);
    });
    for_rows(at.count, D, [&](int64_t r, int64_t d) {
        const W g = widen(dY[r * D + d]) * (base + widen(w[d])), xhat = (widen(X[r * D + d]) - mean[r]) * rstd[r];
        store(&dX[r * D + d], rstd[r] * (g - mean_g[r] - xhat * (room.total[r] / (W)D)));
    });
}

template <typename T, typename G>
__global__ void layernorm_backward_weight(G *dw, G *db, const T *dY, const T *X, const wide<T> *mean,
                                          const wide<T> *rstd, int64_t N, int64_t D)
{
    typedef wide<T> W;
    __shared__ W part[GROUPS][COLUMNS];
    const int64_t d = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const W of_w = over_column<W>(part, N, d < D, [=](int64_t n) {
        return widen(dY[n * D + d]) * ((widen(X[n * D + d]) - mean[n]) * rstd[n]);
    });
    const W of_b = over_column<W>(part, N, d < D, [=](int64_t n) { return widen(dY[n * D + d]); });
    if (threadIdx.y > 0 || d >= D) return;
    store(&dw[d], widen(dw[d]) + of_w);
    if (db) store(&db[d], widen(db[d]) + of_b);
}

void cuda_layernorm_forward(enum dtype t, void *Y, void *mean, void *rstd, const void *X, const void *w, const void *b,
                            int64_t N, int64_t D, double base, double eps)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(layernorm_forward<T>, ROW_GRID(N), 0, (T *)Y, (wide<T> *)mean, (wide<T> *)rstd, (const T *)X,
                        (const T *)w, (const T *)b, N, D, (wide<T>)base, (wide<T>)eps));
}

void cuda_layernorm_backward_input(enum dtype t, void *dX, const void *dY, const void *X, const void *w,
                                   const void *mean, const void *rstd, int64_t N, int64_t D, double base)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(layernorm_backward_input<T>, ROW_GRID(N), 0, (T *)dX, (const T *)dY, (const T *)X,
                        (const T *)w, (const wide<T> *)mean, (const wide<T> *)rstd, N, D, (wide<T>)base));
}

void cuda_layernorm_backward_weight(enum dtype t, enum dtype g, void *dw, void *db, const void *dY, const void *X,
                                    const void *mean, const void *rstd, int64_t N, int64_t D)
{
    if (N == 0 || D == 0) return;
    BY_FORMATS(t, g, LAUNCH((layernorm_backward_weight<T, G>), COLUMN_GRID(D), 0, (G *)dw, (G *)db, (const T *)dY,
                            (const T *)X, (const wide<T> *)mean, (const wide<T> *)rstd, N, D));
}
