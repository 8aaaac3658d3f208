/* gate: each row times the sigmoid of a number (ref/ops/gate.c). */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

template <typename W> __device__ W open_part(W logit) { return 1 / (1 + exp_of(-logit)); }

template <typename T> struct gate_rows {
    T *y;
    const T *x;
    const wide<T> *logits;
    int64_t D;
    __device__ void operator()(int64_t i) const { store(&y[i], widen(x[i]) * open_part(logits[i / D])); }
};

template <typename T>
__global__ void gate_slopes(wide<T> *dlogits, const T *dY, const T *X, const wide<T> *logits, int64_t N, int64_t D)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block(), n = at.first + me;
    dY += at.first * D, X += at.first * D;
    over_rows(room, at.count, D, (W)0, added(), [=](int64_t r, int64_t d) {
        return widen(dY[r * D + d]) * widen(X[r * D + d]);
    });
    if (me < at.count) dlogits[n] = room.total[me] * open_part(logits[n]) * open_part(-logits[n]);
}

void cuda_gate_forward(enum dtype t, void *Y, const void *X, const void *logits, int64_t N, int64_t D)
{
    BY_FORMAT(t, for_each(N * D, gate_rows<T>{ (T *)Y, (const T *)X, (const wide<T> *)logits, D }));
}

void cuda_gate_backward_input(enum dtype t, void *dX, void *dlogits, const void *dY, const void *X, const void *logits,
                              int64_t N, int64_t D)
{
    if (N == 0) return;
    cuda_gate_forward(t, dX, dY, logits, N, D);
    BY_FORMAT(t, LAUNCH(gate_slopes<T>, ROW_GRID(N), 0, (wide<T> *)dlogits, (const T *)dY, (const T *)X,
                        (const wide<T> *)logits, N, D));
}
