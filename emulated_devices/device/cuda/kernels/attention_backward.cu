/* attention, backward: dQ by one kernel, dK and dV by another; scores are computed again from lse
 * (ref/ops/attention.c).
 *
 *   1  naive: one kernel over tiles of queries that adds to dK and dV by atomics: another order in every run
 *   2  two kernels, each of which owns what it writes.  Scores are computed twice; no addition is atomic
 *   3  (this) the same, with squares of scores and of sums in registers (attention.cu); a kernel before them computes
 *      dO . O once for each row, where each tile needed it again
 *
 * dO . O as rows.cuh adds a row.
 * dQ     a block a tile of queries of a head, over tiles of keys in order
 * dK,dV  a block a tile of keys of a key/value head, over its query heads in order, and their queries in order
 */
#include "emulated_devices/device/cuda/kernels/attention.cuh"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

/* delta[n] = row n of dO . row n of O, a row for each head of a token. */
template <typename T> __global__ void attention_deltas(wide<T> *delta, const T *dO, const T *O, int64_t N, int64_t A)
{
    typedef wide<T> W;
    __shared__ row_room<W> room;
    const row_range at = rows_here(N);
    const int64_t me = thread_of_block();
    dO += at.first * A, O += at.first * A;
    over_rows(room, at.count, A, (W)0, added(), [=](int64_t r, int64_t c) {
        return widen(dO[r * A + c]) * widen(O[r * A + c]);
    });
    if (me < at.count) delta[at.first + me] = room.total[me];
}

/* What a probability is from its score, and dropout's factor of it. */
template <typename W> struct probability { W p, factor; };
template <typename W>
__device__ __forceinline__ probability<W> probability_of(const struct cuda_attention &a, int64_t b, int64_t h,
                                                         int64_t q, int64_t k, W score, W lse)
{
    if (q >= a.S || k >= a.S || !sees(a, b, q, k)) return { 0, 0 };
    return { exp_of(score - lse), a.drop.p > 0 ? drop_factor<W>(a, b, h, q, k) : (W)1 };
}

template <typename T, int SIDE, int SPANS>
__global__ void __launch_bounds__(SIDE * SIDE)
attention_backward_queries(T *dQKV, const T *dO, const wide<T> *delta, const wide<T> *lse, const T *QKV,
                           struct cuda_attention a)
{
    typedef wide<T> W;
    typedef attention_tile<W, SIDE, SPANS> B;
    __shared__ __align__(16) typename B::room room;
    __shared__ __align__(16) W ds[B::TILE][B::LD];
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, h = blockIdx.y, b = blockIdx.z, kv = h / (a.H / a.K);
    const tile_at at = tile_here<B>(A, true);
    const int x = threadIdx.x, first = threadIdx.y * B::EACH;
    const T *rows = QKV + b * S * ld;
    const matrix_rows<T> Q = rows_of(rows + h * A, ld, at.row, S, A);
    const matrix_rows<T> dout = rows_of(dO + (b * S * a.H + h) * A, a.H * A, at.row, S, A);
    W dq[B::EACH][B::EACH * SPANS] = { }, top[B::EACH], D[B::EACH];
    bool one[B::EACH];

    UNROLL for (int i = 0; i < B::EACH; i++) {
        const int64_t q = at.row + first + i;
        top[i] = q < S ? lse[(b * a.H + h) * S + q] : (W)0;
        D[i] = q < S ? delta[(b * S + q) * a.H + h] : (W)0;
        one[i] = q < S && sees_one(a, b, q);
    }
    for (int64_t k0 = first_key<B::TILE>(a, at.row); k0 < end_key<B::TILE>(a, at.row); k0 += B::TILE) {
        const matrix_rows<T> K = rows_of(rows + (a.H + kv) * A, ld, k0, S, A);
        W s[B::EACH][B::EACH], dp[B::EACH][B::EACH];
        scores<B>(s, room, Q, K);
        scores<B>(dp, room, dout, rows_of(rows + (a.H + a.K + kv) * A, ld, k0, S, A));
        UNROLL for (int i = 0; i < B::EACH; i++) {
            UNROLL for (int j = 0; j < B::EACH; j++) {
                const W score = score_of(a, s[i][j]);
                const int64_t q = at.row + first + i, k = k0 + x * B::EACH + j;
                const probability<W> is = probability_of(a, b, h, q, k, score, top[i]);
                s[i][j] = one[i] ? (W)0 : is.p * (dp[i][j] * is.factor - D[i]) * score_slope(a, score);
            }
            put(&ds[first + i][x * B::EACH], s[i]);
        }
        accumulate<B, SIDE, SPANS>(dq, ds, room, K, at.column);
    }
    dQKV += (b * S + at.row) * ld + h * A;
    for_sums<B, SIDE, SPANS>(dq, S - at.row, at.column, A, [&](int row, int64_t column, W sum) {
        store(&dQKV[row * ld + column], (W)a.scale * sum);
    });
}

template <typename T, int SIDE, int SPANS>
__global__ void __launch_bounds__(SIDE * SIDE)
attention_backward_keys(T *dQKV, const T *dO, const wide<T> *delta, const wide<T> *lse, const T *QKV,
                        struct cuda_attention a)
{
    typedef wide<T> W;
    typedef attention_tile<W, SIDE, SPANS> B;
    __shared__ __align__(16) typename B::room room;
    __shared__ __align__(16) W p[B::TILE][B::LD];
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, kv = blockIdx.y, b = blockIdx.z, group = a.H / a.K;
    const tile_at at = tile_here<B>(A, false);
    const int x = threadIdx.x, first = threadIdx.y * B::EACH;
    const T *rows = QKV + b * S * ld;
    const matrix_rows<T> K = rows_of(rows + (a.H + kv) * A, ld, at.row, S, A);
    const matrix_rows<T> V = rows_of(rows + (a.H + a.K + kv) * A, ld, at.row, S, A);
    W dk[B::EACH][B::EACH * SPANS] = { }, dv[B::EACH][B::EACH * SPANS] = { };

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t q0 = first_query<B::TILE>(a, at.row); q0 < end_query<B::TILE>(a, at.row); q0 += B::TILE) {
            const matrix_rows<T> Q = rows_of(rows + h * A, ld, q0, S, A);
            const matrix_rows<T> dout = rows_of(dO + (b * S * a.H + h) * A, a.H * A, q0, S, A);
            W s[B::EACH][B::EACH], dp[B::EACH][B::EACH];
            scores<B>(s, room, K, Q);
            scores<B>(dp, room, V, dout);
            UNROLL for (int j = 0; j < B::EACH; j++) {
                const int64_t q = q0 + x * B::EACH + j;
                const W top = q < S ? lse[(b * a.H + h) * S + q] : (W)0;
                const W D = q < S ? delta[(b * S + q) * a.H + h] : (W)0;
                const bool one = q < S && sees_one(a, b, q);
                UNROLL for (int i = 0; i < B::EACH; i++) {
                    const W score = score_of(a, s[i][j]);
                    const probability<W> is = probability_of(a, b, h, q, at.row + first + i, score, top);
                    s[i][j] = is.p * is.factor;
                    dp[i][j] = one ? (W)0 : is.p * (dp[i][j] * is.factor - D) * score_slope(a, score);
                }
            }
            UNROLL for (int i = 0; i < B::EACH; i++) put(&p[first + i][x * B::EACH], s[i]);
            accumulate<B, SIDE, SPANS>(dv, p, room, dout, at.column);
            __syncthreads();                                    /* p has been used */
            UNROLL for (int i = 0; i < B::EACH; i++) put(&p[first + i][x * B::EACH], dp[i]);
            accumulate<B, SIDE, SPANS>(dk, p, room, Q, at.column);
        }
    dQKV += (b * S + at.row) * ld + (a.H + kv) * A;
    for_sums<B, SIDE, SPANS>(dk, S - at.row, at.column, A, [&](int row, int64_t column, W sum) {
        store(&dQKV[row * ld + column], (W)a.scale * sum);
    });
    for_sums<B, SIDE, SPANS>(dv, S - at.row, at.column, A, [&](int row, int64_t column, W sum) {
        store(&dQKV[row * ld + a.K * A + column], sum);
    });
}

template <typename T, int SIDE, int SPANS>
static void backward(T *dQKV, const T *dO, const wide<T> *delta, const wide<T> *lse, const T *QKV,
                     struct cuda_attention a, int64_t B)
{
    typedef attention_tile<wide<T>, SIDE, SPANS> tile;
    LAUNCH((attention_backward_queries<T, SIDE, SPANS>), attention_grid<tile>(a.S, a.A, a.H, B), dim3(SIDE, SIDE), 0,
           dQKV, dO, delta, lse, QKV, a);
    LAUNCH((attention_backward_keys<T, SIDE, SPANS>), attention_grid<tile>(a.S, a.A, a.K, B), dim3(SIDE, SIDE), 0,
           dQKV, dO, delta, lse, QKV, a);
}

void cuda_attention_backward_input(enum dtype t, void *dQKV, void *delta, const void *dO, const void *O,
                                   const void *lse, const void *QKV, struct cuda_attention a, int64_t B)
{
    const int64_t N = B * a.S * a.H;
    if (B == 0 || a.S == 0 || a.K == 0) return;
    BY_FORMAT(t, LAUNCH(attention_deltas<T>, ROW_GRID(N), 0, (wide<T> *)delta, (const T *)dO, (const T *)O, N, a.A));
    BY_FORMAT(t, BY_TILE(wide<T>, a, backward, (T *)dQKV, (const T *)dO, (const wide<T> *)delta, (const wide<T> *)lse,
                         (const T *)QKV, a, B));
}
