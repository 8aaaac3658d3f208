/* rotary: turns pairs of queries and keys by their positions (ref/ops/rotary.c).  A thread a pair; in place. */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"

template <typename T, typename G> struct turn {
    T *x;
    const int32_t *positions;
    const G *table;
    int64_t ld, heads, A, half;
    bool neighbours;
    wide<T> direction;
    __device__ void operator()(int64_t i) const
    {
        const int64_t pair = i % half, head = i / half % heads, n = i / half / heads;
        const G *c = table + positions[n] * 2 * half + pair;
        T *a = x + n * ld + head * A + (neighbours ? 2 * pair : pair), *b = a + (neighbours ? 1 : half);
        const wide<T> u = widen(*a), v = widen(*b), cosine = widen(c[0]), sine = direction * widen(c[half]);
        store(a, u * cosine - v * sine);
        store(b, v * cosine + u * sine);
    }
};

/* The table may be fp32 where numbers have 16 bits. */
void cuda_rotary(enum dtype t, enum dtype g, void *QKV, const int32_t *positions, const void *table, int64_t N,
                 int64_t ld, int64_t heads, int64_t A, int64_t R, bool neighbours, int direction)
{
    if (R == 0) return;
    BY_FORMATS(t, g, for_each(N * heads * (R / 2),
                              turn<T, G>{ (T *)QKV, positions, (const G *)table, ld, heads, A, R / 2, neighbours,
                                          (wide<T>)direction }));
}
