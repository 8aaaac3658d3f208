/* attention, backward: dQ by one kernel, dK and dV by another; scores are computed again from lse (ref/ops/attention.c).
 *
 *   1  naive: one kernel over tiles of queries that adds to dK and dV by atomics: another order in every run
 *   2  (this) two kernels, each of which owns what it writes.  Scores are computed twice; no addition is atomic
 *
 * dQ     a block a tile of queries of a head, over tiles of keys in order
 * dK,dV  a block a tile of keys of a key/value head, over its query heads in order, and their queries in order
 */
#include "emulated_devices/device/cuda/kernels/attention.cuh"

/* D of a row: dO . O. */
template <typename T> __device__ wide<T> delta_of(const T *dO, const T *O, int64_t A)
{
    wide<T> sum = 0;
    for (int64_t i = 0; i < A; i++) sum += widen(dO[i]) * widen(O[i]);
    return sum;
}

template <typename W> static size_t room_queries(size_t tile, int64_t A)
{
    return (4 * tile * (size_t)A + 2 * (size_t)A * (tile + 1) + tile * (tile + 1) + 2 * tile) * sizeof(W);
}

template <typename T, int TILE>
__global__ void attention_backward_queries(T *dQKV, const T *dO, const T *O, const wide<T> *lse, const T *QKV,
                                           struct cuda_attention a)
{
    typedef wide<T> W;
    DYNAMIC_SHARED(W, room);
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, q0 = (int64_t)blockIdx.x * TILE, h = blockIdx.y;
    const int64_t b = blockIdx.z, kv = h / (a.H / a.K), ld_o = a.H * A;
    const int r = threadIdx.x / 4, quarter = threadIdx.x % 4;
    W *q = room, *dout = q + TILE * A, *k = dout + TILE * A, *dq = k + TILE * A, *kt = dq + TILE * A;
    W *vt = kt + A * (TILE + 1), *ds = vt + A * (TILE + 1), *delta = ds + TILE * (TILE + 1), *top = delta + TILE;
    const T *rows = QKV + b * S * ld;

    load_tile<TILE>(q, rows + h * A, ld, q0, S, A);
    load_tile<TILE>(dout, dO + b * S * ld_o + h * A, ld_o, q0, S, A);
    clear_tile<TILE>(dq, A);
    if (threadIdx.x < TILE) {
        const int64_t row = q0 + threadIdx.x, at = (b * S + row) * ld_o + h * A;
        delta[threadIdx.x] = row < S ? delta_of(dO + at, O + at, A) : (W)0;
        top[threadIdx.x] = row < S ? lse[(b * a.H + h) * S + row] : (W)0;
    }

    for (int64_t k0 = first_key<TILE>(a, q0); k0 < end_key<TILE>(a, q0); k0 += TILE) {
        __syncthreads();
        load_tile<TILE>(k, rows + (a.H + kv) * A, ld, k0, S, A);
        load_transposed<TILE>(kt, rows + (a.H + kv) * A, ld, k0, S, A);
        load_transposed<TILE>(vt, rows + (a.H + a.K + kv) * A, ld, k0, S, A);
        __syncthreads();

        W score[TILE / 4], dp[TILE / 4];
        products<TILE>(score, q + r * A, kt + quarter * (TILE / 4), A);
        products<TILE>(dp, dout + r * A, vt + quarter * (TILE / 4), A);
        for (int c = 0; c < TILE / 4; c++) {
            const int64_t at = k0 + quarter * (TILE / 4) + c;
            const bool seen = q0 + r < S && at < S && sees(a, b, q0 + r, at);
            if (seen && a.drop.p > 0) dp[c] *= drop_factor<W>(a, b, h, q0 + r, at);
            const W s = score_of(a, score[c]);
            ds[r * (TILE + 1) + quarter * (TILE / 4) + c] =
                seen ? exp_of(s - top[r]) * (dp[c] - delta[r]) * score_slope(a, s) : (W)0;
        }
        __syncthreads();

        for (int c = 0; c < TILE; c++) {
            const W weight = ds[r * (TILE + 1) + c];
            for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++) dq[r * A + i] += weight * k[c * A + i];
        }
    }
    if (q0 + r >= S) return;
    for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++)
        store(&dQKV[(b * S + q0 + r) * ld + h * A + i], (W)a.scale * dq[r * A + i]);
}

template <typename W> static size_t room_keys(size_t tile, int64_t A)
{
    return (6 * tile * (size_t)A + 2 * (size_t)A * (tile + 1) + 2 * tile * (tile + 1) + 2 * tile) * sizeof(W);
}

template <typename T, int TILE>
__global__ void attention_backward_keys(T *dQKV, const T *dO, const T *O, const wide<T> *lse, const T *QKV,
                                        struct cuda_attention a)
{
    typedef wide<T> W;
    DYNAMIC_SHARED(W, room);
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, k0 = (int64_t)blockIdx.x * TILE, kv = blockIdx.y;
    const int64_t b = blockIdx.z, ld_o = a.H * A, group = a.H / a.K;
    const int r = threadIdx.x / 4, quarter = threadIdx.x % 4;
    W *k = room, *v = k + TILE * A, *q = v + TILE * A, *dout = q + TILE * A, *dk = dout + TILE * A, *dv = dk + TILE * A;
    W *qt = dv + TILE * A, *dot = qt + A * (TILE + 1), *p = dot + A * (TILE + 1), *ds = p + TILE * (TILE + 1);
    W *delta = ds + TILE * (TILE + 1), *top = delta + TILE;
    const T *rows = QKV + b * S * ld;

    load_tile<TILE>(k, rows + (a.H + kv) * A, ld, k0, S, A);
    load_tile<TILE>(v, rows + (a.H + a.K + kv) * A, ld, k0, S, A);
    clear_tile<TILE>(dk, A);
    clear_tile<TILE>(dv, A);

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t q0 = first_query<TILE>(a, k0); q0 < end_query<TILE>(a, k0); q0 += TILE) {
            const T *from = dO + b * S * ld_o + h * A;
            __syncthreads();
            load_tile<TILE>(q, rows + h * A, ld, q0, S, A);
            load_transposed<TILE>(qt, rows + h * A, ld, q0, S, A);
            load_tile<TILE>(dout, from, ld_o, q0, S, A);
            load_transposed<TILE>(dot, from, ld_o, q0, S, A);
            if (threadIdx.x < TILE) {
                const int64_t row = q0 + threadIdx.x;
                delta[threadIdx.x] = row < S ? delta_of(from + row * ld_o, O + b * S * ld_o + h * A + row * ld_o, A)
                                             : (W)0;
                top[threadIdx.x] = row < S ? lse[(b * a.H + h) * S + row] : (W)0;
            }
            __syncthreads();

            W score[TILE / 4], dp[TILE / 4];
            products<TILE>(score, k + r * A, qt + quarter * (TILE / 4), A);
            products<TILE>(dp, v + r * A, dot + quarter * (TILE / 4), A);
            for (int c = 0; c < TILE / 4; c++) {
                const int column = quarter * (TILE / 4) + c;
                const int64_t at = q0 + column;
                const bool seen = at < S && k0 + r < S && sees(a, b, at, k0 + r);
                const W factor = seen && a.drop.p > 0 ? drop_factor<W>(a, b, h, at, k0 + r) : (W)1;
                const W s = score_of(a, score[c]), weight = seen ? exp_of(s - top[column]) : (W)0;
                p[r * (TILE + 1) + column] = weight * factor;
                ds[r * (TILE + 1) + column] = weight * (dp[c] * factor - delta[column]) * score_slope(a, s);
            }
            __syncthreads();

            for (int c = 0; c < TILE; c++) {
                const W of_v = p[r * (TILE + 1) + c], of_k = ds[r * (TILE + 1) + c];
                for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++) {
                    dv[r * A + i] += of_v * dout[c * A + i];
                    dk[r * A + i] += of_k * q[c * A + i];
                }
            }
        }
    if (k0 + r >= S) return;
    for (int64_t i = quarter * A / 4; i < (quarter + 1) * A / 4; i++) {
        T *row = dQKV + (b * S + k0 + r) * ld + (a.H + kv) * A;
        store(&row[i], (W)a.scale * dk[r * A + i]);
        store(&row[a.K * A + i], dv[r * A + i]);
    }
}

template <typename T, int TILE>
static void queries(T *dQKV, const T *dO, const T *O, const wide<T> *lse, const T *QKV, struct cuda_attention a,
                    int64_t B)
{
    const size_t bytes = room_queries<wide<T>>(TILE, a.A);
    const dim3 grid((unsigned)blocks_of(a.S, TILE), (unsigned)a.H, (unsigned)B);
    cudaFuncSetAttribute(attention_backward_queries<T, TILE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    LAUNCH((attention_backward_queries<T, TILE>), grid, dim3(4 * TILE), bytes, dQKV, dO, O, lse, QKV, a);
}

template <typename T, int TILE>
static void keys(T *dQKV, const T *dO, const T *O, const wide<T> *lse, const T *QKV, struct cuda_attention a, int64_t B)
{
    const size_t bytes = room_keys<wide<T>>(TILE, a.A);
    const dim3 grid((unsigned)blocks_of(a.S, TILE), (unsigned)a.K, (unsigned)B);
    cudaFuncSetAttribute(attention_backward_keys<T, TILE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    LAUNCH((attention_backward_keys<T, TILE>), grid, dim3(4 * TILE), bytes, dQKV, dO, O, lse, QKV, a);
}

template <typename T>
static void backward(T *dQKV, const T *dO, const T *O, const wide<T> *lse, const T *QKV, struct cuda_attention a,
                     int64_t B)
{
    switch (tile_for([=](size_t tile) { return room_queries<wide<T>>(tile, a.A); })) {
    case 32: queries<T, 32>(dQKV, dO, O, lse, QKV, a, B); break;
    case 16: queries<T, 16>(dQKV, dO, O, lse, QKV, a, B); break;
    case 8: queries<T, 8>(dQKV, dO, O, lse, QKV, a, B); break;
    default: queries<T, 4>(dQKV, dO, O, lse, QKV, a, B); break;
    }
    switch (tile_for([=](size_t tile) { return room_keys<wide<T>>(tile, a.A); })) {
    case 32: keys<T, 32>(dQKV, dO, O, lse, QKV, a, B); break;
    case 16: keys<T, 16>(dQKV, dO, O, lse, QKV, a, B); break;
    case 8: keys<T, 8>(dQKV, dO, O, lse, QKV, a, B); break;
    default: keys<T, 4>(dQKV, dO, O, lse, QKV, a, B); break;
    }
}

void cuda_attention_backward_input(enum dtype t, void *dQKV, const void *dO, const void *O, const void *lse,
                                   const void *QKV, struct cuda_attention a, int64_t B)
{
    if (B == 0 || a.S == 0 || a.K == 0) return;
    BY_FORMAT(t, backward((T *)dQKV, (const T *)dO, (const T *)O, (const wide<T> *)lse, (const T *)QKV, a, B));
}
