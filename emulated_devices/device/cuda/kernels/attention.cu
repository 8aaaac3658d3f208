/* attention, forward: O = softmax(scale Q K^T) V for each head, and lse (ref/ops/attention.c).
 *
 *   1  naive: a thread a query.  It reads all keys and values again, and keeps a row of S scores
 *   2  scores, softmax and product as three kernels: coalesced, but S x S scores go through the memory twice
 *   3  (this) an online softmax: a block keeps a tile of queries, and takes tile after tile of keys and values; only
 *      the largest score, the sum and the output of each row are kept, and rescaled when a larger score comes
 *      (arXiv:2205.14135).  Keys are stored transposed, so that a thread's scores lie side by side in registers
 */
#include "emulated_devices/device/cuda/kernels/attention.cuh"

template <typename W> static size_t room_forward(size_t tile, int64_t A)
{
    return (tile * (size_t)A * 3 + (size_t)A * (tile + 1) + tile * (tile + 1) + tile * 3) * sizeof(W);
}

template <typename T, int TILE>
__global__ void attention_forward(T *O, wide<T> *lse, const T *QKV, struct cuda_attention a)
{
    typedef wide<T> W;
    DYNAMIC_SHARED(W, room);
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, q0 = (int64_t)blockIdx.x * TILE, h = blockIdx.y;
    const int64_t b = blockIdx.z, kv = h / (a.H / a.K);
    const int r = threadIdx.x / 4, quarter = threadIdx.x % 4;
    W *q = room, *v = q + TILE * A, *o = v + TILE * A, *kt = o + TILE * A, *p = kt + A * (TILE + 1);
    W *top = p + TILE * (TILE + 1), *total = top + TILE, *keep = total + TILE;
    const T *rows = QKV + b * S * ld;

    load_tile<TILE>(q, rows + h * A, ld, q0, S, A);
    clear_tile<TILE>(o, A);
    if (threadIdx.x < TILE) {                                   /* a sink is a key that has been seen, without a value */
        const W sink = a.sinks != NULL ? widen(((const T *)a.sinks)[h]) : (W)-INFINITY;
        top[threadIdx.x] = sink, total[threadIdx.x] = sink > (W)-INFINITY;
    }

    for (int64_t k0 = first_key<TILE>(a, q0); k0 < end_key<TILE>(a, q0); k0 += TILE) {
        __syncthreads();                                        /* the last tile has been used */
        load_transposed<TILE>(kt, rows + (a.H + kv) * A, ld, k0, S, A);
        load_tile<TILE>(v, rows + (a.H + a.K + kv) * A, ld, k0, S, A);
        __syncthreads();

        W score[TILE / 4];
        products<TILE>(score, q + r * A, kt + quarter * (TILE / 4), A);
        for (int c = 0; c < TILE / 4; c++) {
            const int64_t k = k0 + quarter * (TILE / 4) + c;
            const bool seen = q0 + r < S && k < S && sees(a, b, q0 + r, k);
            p[r * (TILE + 1) + quarter * (TILE / 4) + c] = seen ? score_of(a, score[c]) : (W)-INFINITY;
        }
        __syncthreads();

        if (threadIdx.x < TILE) {                               /* a thread a row */
            W *x = p + threadIdx.x * (TILE + 1), high = top[threadIdx.x], sum = 0;
            for (int c = 0; c < TILE; c++) high = x[c] > high || x[c] != x[c] ? x[c] : high;
            const bool none = high == (W)-INFINITY;             /* no key has been seen yet */
            for (int c = 0; c < TILE; c++) sum += x[c] = none ? 0 : exp_of(x[c] - high);
            keep[threadIdx.x] = none ? 1 : exp_of(top[threadIdx.x] - high);
            total[threadIdx.x] = total[threadIdx.x] * keep[threadIdx.x] + sum;
            top[threadIdx.x] = high;
        }
        __syncthreads();

        if (a.drop.p > 0)
            for (int c = quarter * (TILE / 4); c < (quarter + 1) * (TILE / 4); c++)
                p[r * (TILE + 1) + c] *= drop_factor<W>(a, b, h, q0 + r, k0 + c);
        if (a.drop.p > 0) __syncthreads();
        for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++) o[r * A + i] *= keep[r];
        for (int c = 0; c < TILE; c++) {
            const W weight = p[r * (TILE + 1) + c];
            for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++) o[r * A + i] += weight * v[c * A + i];
        }
    }
    __syncthreads();                                            /* total and top are another thread's */

    if (q0 + r >= S) return;
    const W sum = total[r];
    for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++)
        store(&O[((b * S + q0 + r) * a.H + h) * A + i], sum > 0 || sum != sum ? o[r * A + i] / sum : (W)0);
    if (quarter == 0) lse[(b * a.H + h) * S + q0 + r] = sum == 0 ? (W)-INFINITY : top[r] + log_of(sum);
}

template <typename T, int TILE> static void forward(T *O, wide<T> *lse, const T *QKV, struct cuda_attention a, int64_t B)
{
    const size_t bytes = room_forward<wide<T>>(TILE, a.A);
    const dim3 grid((unsigned)blocks_of(a.S, TILE), (unsigned)a.H, (unsigned)B);
    cudaFuncSetAttribute(attention_forward<T, TILE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    LAUNCH((attention_forward<T, TILE>), grid, dim3(4 * TILE), bytes, O, lse, QKV, a);
}

template <typename T> static void forward_in_tiles(T *O, wide<T> *lse, const T *QKV, struct cuda_attention a, int64_t B)
{
    switch (tile_for([=](size_t tile) { return room_forward<wide<T>>(tile, a.A); })) {
    case 32: forward<T, 32>(O, lse, QKV, a, B); break;
    case 16: forward<T, 16>(O, lse, QKV, a, B); break;
    case 8: forward<T, 8>(O, lse, QKV, a, B); break;
    default: forward<T, 4>(O, lse, QKV, a, B); break;
    }
}

void cuda_attention_forward(enum dtype t, void *O, void *lse, const void *QKV, struct cuda_attention a, int64_t B)
{
    if (B == 0 || a.S == 0 || a.H == 0) return;
    BY_FORMAT(t, forward_in_tiles((T *)O, (wide<T> *)lse, (const T *)QKV, a, B));
}
