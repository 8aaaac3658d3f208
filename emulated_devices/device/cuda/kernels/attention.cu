/* attention, forward: O = softmax(scale Q K^T) V for each head, and lse (ref/ops/attention.c).
 *
 *   1  naive: a thread a query.  It reads all keys and values again, and keeps a row of S scores
 *   2  scores, softmax and product as three kernels: coalesced, but S x S scores go through the memory twice
 *   3  an online softmax: a block keeps a tile of queries, and takes tile after tile of keys and values; only the
 *      largest score, the sum and the output of each row are kept, and rescaled when a larger score comes
 *      (arXiv:2205.14135).  With a row of the tile a thread, each multiplication still reads two numbers from shared
 *      memory
 *   4  (this) a thread has a square of scores and of outputs in registers, so that a number that it reads is
 *      multiplied EACH times; rows share their largest score once a tile, and their sums only at the end
 *
 * A row's sum of exp(score - largest): thread x adds its EACH keys of each tile, tile by tile; then threads in order
 * of x.
 */
#include "emulated_devices/device/cuda/kernels/attention.cuh"
#include "emulated_devices/device/cuda/kernels/rows.cuh"

/* own[i] becomes what the threads of its row have, joined after `start` in order of x.  The whole block calls it. */
template <typename B, int SIDE, typename W, typename J>
__device__ __forceinline__ void join_rows(W (&own)[B::EACH], const W (&start)[B::EACH], W (&part)[SIDE][B::LD], J join)
{
    const int first = threadIdx.y * B::EACH;
    put(&part[threadIdx.x][first], own);
    __syncthreads();
    UNROLL for (int i = 0; i < B::EACH; i++) own[i] = start[i];
    UNROLL for (int other = 0; other < SIDE; other++) {
        W theirs[B::EACH];
        take(theirs, &part[other][first]);
        UNROLL for (int i = 0; i < B::EACH; i++) own[i] = join(own[i], theirs[i]);
    }
}

template <typename T, int SIDE, int SPANS>
__global__ void __launch_bounds__(SIDE * SIDE) attention_forward(T *O, wide<T> *lse, const T *QKV,
                                                                 struct cuda_attention a)
{
    typedef wide<T> W;
    typedef attention_tile<W, SIDE, SPANS> B;
    __shared__ __align__(16) typename B::room room;
    __shared__ __align__(16) W p[B::TILE][B::LD], part[SIDE][B::LD];
    const int64_t A = a.A, S = a.S, ld = (a.H + 2 * a.K) * A, h = blockIdx.y, b = blockIdx.z, kv = h / (a.H / a.K);
    const tile_at at = tile_here<B>(A, true);
    const int x = threadIdx.x, first = threadIdx.y * B::EACH;
    const T *rows = QKV + b * S * ld;
    const matrix_rows<T> Q = rows_of(rows + h * A, ld, at.row, S, A);
    W o[B::EACH][B::EACH * SPANS] = { }, top[B::EACH], total[B::EACH];

    /* A sink is a key that has been seen, without a value. */
    UNROLL for (int i = 0; i < B::EACH; i++) {
        top[i] = a.sinks != NULL ? widen(((const T *)a.sinks)[h]) : (W)-INFINITY;
        total[i] = x == 0 && top[i] > (W)-INFINITY;
    }
    for (int64_t k0 = first_key<B::TILE>(a, at.row); k0 < end_key<B::TILE>(a, at.row); k0 += B::TILE) {
        W s[B::EACH][B::EACH], high[B::EACH];
        scores<B>(s, room, Q, rows_of(rows + (a.H + kv) * A, ld, k0, S, A));
        UNROLL for (int i = 0; i < B::EACH; i++) {
            high[i] = (W)-INFINITY;
            UNROLL for (int j = 0; j < B::EACH; j++) {
                const int64_t q = at.row + first + i, k = k0 + x * B::EACH + j;
                s[i][j] = q < S && k < S && sees(a, b, q, k) ? score_of(a, s[i][j]) : (W)-INFINITY;
                high[i] = largest()(high[i], s[i][j]);
            }
        }
        join_rows<B>(high, top, part, largest());
        UNROLL for (int i = 0; i < B::EACH; i++) {
            const bool none = high[i] == (W)-INFINITY;          /* no key has been seen yet */
            const W keep = none ? (W)1 : exp_of(top[i] - high[i]);
            total[i] *= keep, top[i] = high[i];
            UNROLL for (int j = 0; j < B::EACH; j++) {
                total[i] += s[i][j] = none ? (W)0 : exp_of(s[i][j] - high[i]);
                if (a.drop.p > 0) s[i][j] *= drop_factor<W>(a, b, h, at.row + first + i, k0 + x * B::EACH + j);
            }
            UNROLL for (int c = 0; c < B::EACH * SPANS; c++) o[i][c] *= keep;
            put(&p[first + i][x * B::EACH], s[i]);
        }
        accumulate<B, SIDE, SPANS>(o, p, room, rows_of(rows + (a.H + a.K + kv) * A, ld, k0, S, A), at.column);
    }

    const W nothing[B::EACH] = { };
    join_rows<B>(total, nothing, part, added());
    O += (b * S + at.row) * a.H * A + h * A;
    for_sums<B, SIDE, SPANS>(o, S - at.row, at.column, A, [&](int row, int64_t column, W sum) {
        const W all = total[row - first];
        store(&O[row * a.H * A + column], all > 0 || all != all ? sum / all : (W)0);
    });
    UNROLL for (int i = 0; i < B::EACH; i++)
        if (x == 0 && at.column == 0 && at.row + first + i < S)
            lse[(b * a.H + h) * S + at.row + first + i] = total[i] == 0 ? (W)-INFINITY : top[i] + log_of(total[i]);
}

template <typename T, int SIDE, int SPANS>
static void forward(T *O, wide<T> *lse, const T *QKV, struct cuda_attention a, int64_t B)
{
    typedef attention_tile<wide<T>, SIDE, SPANS> tile;
    LAUNCH((attention_forward<T, SIDE, SPANS>), attention_grid<tile>(a.S, a.A, a.H, B), dim3(SIDE, SIDE), 0, O, lse,
           QKV, a);
}

void cuda_attention_forward(enum dtype t, void *O, void *lse, const void *QKV, struct cuda_attention a, int64_t B)
{
    if (B == 0 || a.S == 0 || a.H == 0) return;
    BY_FORMAT(t, BY_TILE(wide<T>, a, forward, (T *)O, (wide<T> *)lse, (const T *)QKV, a, B));
}
