/* rmsnorm: ref/ops/rmsnorm.c on a GPU.  Sums of rows and columns as rows.cuh orders them. */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

template <typename T>
__global__ void rmsnorm_forward(T *Y, wide<T> *rstd, const T *X, const T *w, int64_t N, int64_t D, wide<T> base,
                                wide<T> eps)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    X += at.first * D, Y += at.first * D, rstd += at.first;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
        const W x = widen(X[r * D + d]);
        return x * x;
    });
    for_rows(at.count, D, [&](int64_t r, int64_t d) {
        const W scale = 1 / root_of(room.total[r] / (W)D + eps);
        store(&Y[r * D + d], widen(X[r * D + d]) * scale * (base + widen(w[d])));
    });
    const int64_t me = thread_of_block();
    if (me < at.count) rstd[me] = 1 / root_of(room.total[me] / (W)D + eps);
}

template <typename T>
__global__ void rmsnorm_backward_input(T *dX, const T *dY, const T *X, const T *w, const wide<T> *rstd, int64_t N,
                                       int64_t D, wide<T> base)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    X += at.first * D, dY += at.first * D, dX += at.first * D, rstd += at.first;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
        return widen(dY[r * D + d]) * (base + widen(w[d])) * (widen(X[r * D + d]) * rstd[r]);
    });
    for_rows(at.count, D, [&](int64_t r, int64_t d) {
        const W g = widen(dY[r * D + d]) * (base + widen(w[d])), mean = room.total[r] / (W)D;
        store(&dX[r * D + d], rstd[r] * (g - widen(X[r * D + d]) * rstd[r] * mean));
    });
}

template <typename T, typename G>
__global__ void rmsnorm_backward_weight(G *dw, const T *dY, const T *X, const wide<T> *rstd, int64_t N, int64_t D)
{
    typedef wide<T> W;
    __shared__ W part[GROUPS][COLUMNS];
    const int64_t d = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const W sum = over_column<W>(part, N, d < D, [=](int64_t n) {
        return widen(dY[n * D + d]) * (widen(X[n * D + d]) * rstd[n]);
    });
    if (threadIdx.y == 0 && d < D) store(&dw[d], widen(dw[d]) + sum);
}

void cuda_rmsnorm_forward(enum dtype t, void *Y, void *rstd, const void *X, const void *w, int64_t N, int64_t D,
                          double base, double eps)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(rmsnorm_forward<T>, ROW_GRID(N), 0, (T *)Y, (wide<T> *)rstd, (const T *)X, (const T *)w, N, D,
                        (wide<T>)base, (wide<T>)eps));
}

void cuda_rmsnorm_backward_input(enum dtype t, void *dX, const void *dY, const void *X, const void *w, const void *rstd,
                                 int64_t N, int64_t D, double base)
{
    if (N == 0) return;
    BY_FORMAT(t, LAUNCH(rmsnorm_backward_input<T>, ROW_GRID(N), 0, (T *)dX, (const T *)dY, (const T *)X, (const T *)w,
                        (const wide<T> *)rstd, N, D, (wide<T>)base));
}

void cuda_rmsnorm_backward_weight(enum dtype t, enum dtype g, void *dw, const void *dY, const void *X, const void *rstd,
                                  int64_t N, int64_t D)
{
    if (N == 0 || D == 0) return;
    BY_FORMATS(t, g, LAUNCH((rmsnorm_backward_weight<T, G>), COLUMN_GRID(D), 0, (G *)dw, (const T *)dY, (const T *)X,
                            (const wide<T> *)rstd, N, D));
}
