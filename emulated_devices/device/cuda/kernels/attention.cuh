/* attention.cuh -- what the attention kernels share: which keys a query sees, dropout's factors, and two products.
 *
 * A block is a square of SIDE x SIDE threads, and a tile of scores has EACH rows and columns for each of them: 16 bytes
 * of numbers, what a thread moves at once.  Thread (x, y) has rows y EACH .., columns x EACH .. of the tile, in
 * registers.  Two functions of the whole block do the work:
 *
 *   scores      the tile  X Y^T: rows of X and of Y, SLAB of their columns at a time, lie transposed in shared memory,
 *               so that 2 reads of 16 bytes serve EACH^2 multiplications
 *   accumulate  sum += P Z: P is a tile in shared memory, and of Z a span of columns is there, row after row
 *
 * Every sum of an element is one thread's, in order: over columns of a head, keys, or queries, from the first to the
 * last.
 */
#ifndef ORRERY_CUDA_ATTENTION_CUH
#define ORRERY_CUDA_ATTENTION_CUH

#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"
#include "emulated_devices/device/cuda/kernels/philox.cuh"
#include <math.h>

/* What query q of sequence b sees. */
__device__ __forceinline__ bool sees(const struct cuda_attention &a, int64_t b, int64_t q, int64_t k)
{
    if (a.window > 0 && k + a.window <= q) return false;
    if (a.mask == NULL) return k <= q;
    const int32_t *range = a.mask + ((a.mask_each ? b * a.S : 0) + q) * 2 * a.ranges;
    for (int64_t i = 0; i < a.ranges; i++)
        if (k >= range[2 * i] && k < range[2 * i + 1]) return true;
    return false;
}

/* Whether query q of sequence b sees one key, and nothing more: its probability is 1, whatever its score is. */
__device__ __forceinline__ bool sees_one(const struct cuda_attention &a, int64_t b, int64_t q)
{
    const int64_t from = a.window > 0 && q + 1 > a.window ? q + 1 - a.window : 0;
    int64_t seen = a.mask == NULL ? q + 1 - from : 0;
    const int32_t *range = a.mask + ((a.mask_each ? b * a.S : 0) + q) * 2 * a.ranges;
    for (int64_t i = 0; i < a.ranges && a.mask != NULL; i++) {
        const int64_t first = range[2 * i] > from ? range[2 * i] : from, end = range[2 * i + 1];
        seen += first < end && first < a.S ? (end < a.S ? end : a.S) - first : 0;
    }
    return seen == 1 && !a.more && a.sinks == NULL;
}

/* Dropout's factor of a probability, as ref/ops/attention_rows.c numbers them. */
template <typename W>
__device__ __forceinline__ W drop_factor(const struct cuda_attention &a, int64_t b, int64_t h, int64_t q, int64_t k)
{
    const int64_t each = a.each, first = ((a.drop.row0 + b) * a.drop.cols + a.drop.col0 + h) * each;
    const int64_t row = first + q / each * a.drop.cols * each + q % each;
    return random_uniform(a.drop.seed, a.drop.stream, (uint64_t)(row * each + k % each)) >= a.drop.p
               ? (W)(1 / (1 - a.drop.p)) : (W)0;
}

/* A score, from a product of a query and a key; and the derivative where the score is s. */
template <typename W> __device__ __forceinline__ W score_of(const struct cuda_attention &a, W product)
{
    const W s = (W)a.scale * product, cap = (W)a.cap;
    return cap > 0 ? cap * tanh_of(s / cap) : s;
}
template <typename W> __device__ __forceinline__ W score_slope(const struct cuda_attention &a, W s)
{
    const W t = a.cap > 0 ? s / (W)a.cap : 0;
    return (1 - t) * (1 + t);
}

/* ---- 16 bytes ---------------------------------------------------------------------------------------------------- */

template <typename W> struct sixteen_bytes { };
template <> struct sixteen_bytes<float> { typedef float4 type; };
template <> struct sixteen_bytes<double> { typedef double2 type; };
template <typename W> constexpr int EACH_OF = 16 / (int)sizeof(W);

__device__ __forceinline__ void spread(float *to, float4 x) { to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w; }
__device__ __forceinline__ void spread(double *to, double2 x) { to[0] = x.x, to[1] = x.y; }
__device__ __forceinline__ float4 joined(const float *x) { return make_float4(x[0], x[1], x[2], x[3]); }
__device__ __forceinline__ double2 joined(const double *x) { return make_double2(x[0], x[1]); }

/* Registers from shared memory, and back; the address is a multiple of 16. */
template <typename W> __device__ __forceinline__ void take(W (&to)[EACH_OF<W>], const W *from)
{
    spread(to, *reinterpret_cast<const typename sixteen_bytes<W>::type *>(from));
}
template <typename W> __device__ __forceinline__ void put(W *to, const W (&from)[EACH_OF<W>])
{
    *reinterpret_cast<typename sixteen_bytes<W>::type *>(to) = joined(from);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The sizes of a block with SIDE x SIDE threads, whose sums have SPANS times 16 bytes of columns. */
template <typename W, int SIDE, int SPANS> struct attention_tile {
    static constexpr int EACH = EACH_OF<W>, TILE = SIDE * EACH, THREADS = SIDE * SIDE, SLAB = 32;
    static constexpr int LD = TILE + EACH;      /* of rows in shared memory: 16 bytes more spread a column over banks */
    static constexpr int WIDTH = TILE * SPANS, KEPT = TILE / SPANS;
    /* Slabs of X and Y; or, later, KEPT rows of Z. */
    struct room { W slab[2][SLAB][LD]; };
    static_assert(sizeof(room) >= sizeof(W) * KEPT * WIDTH, "the rows of Z lie where the slabs were");
};

/* Rows of a matrix: the first one of a tile, how far apart they are, how many there are from there on, and columns. */
template <typename T> struct matrix_rows { const T *first; int64_t ld, rows, columns; };

template <typename T> __device__ __forceinline__ matrix_rows<T> rows_of(const T *matrix, int64_t ld, int64_t first,
                                                                       int64_t S, int64_t A)
{
    return { matrix + first * ld, ld, S - first, A };
}

/* Columns c0 .. of a tile's rows, transposed, zeros where there are none.  Threads side by side take 8 columns of 4
 * rows: whole sectors are read, and with LD a multiple of 4 words but not of 8, they write to different banks. */
template <typename B, typename W, typename T>
__device__ __forceinline__ void load_slab(W (&slab)[B::SLAB][B::LD], matrix_rows<T> from, int64_t c0, int me)
{
    const int patches = from.columns - c0 < B::SLAB ? (int)(from.columns - c0 + 7) / 8 : B::SLAB / 8;
    for (int i = me; i < 8 * B::TILE * patches; i += B::THREADS) {
        const int row = i / 8 % B::TILE, column = i % 8 + 8 * (i / (8 * B::TILE));
        const bool is = row < from.rows && c0 + column < from.columns;
        slab[column][row] = is ? widen(from.first[row * from.ld + c0 + column]) : (W)0;
    }
}

/* s[i][j] = row y EACH + i of X . row x EACH + j of Y. */
template <typename B, typename W, typename T>
__device__ __forceinline__ void scores(W (&s)[B::EACH][B::EACH], typename B::room &room, matrix_rows<T> X,
                                       matrix_rows<T> Y)
{
    const int x = threadIdx.x, y = threadIdx.y, me = y * (int)blockDim.x + x;
    UNROLL for (int i = 0; i < B::EACH; i++)
        UNROLL for (int j = 0; j < B::EACH; j++) s[i][j] = 0;
    for (int64_t c0 = 0; c0 < X.columns; c0 += B::SLAB) {
        const int end = X.columns - c0 < B::SLAB ? (int)(X.columns - c0) : B::SLAB;
        __syncthreads();                                /* the last slab has been used */
        load_slab<B>(room.slab[0], X, c0, me);
        load_slab<B>(room.slab[1], Y, c0, me);
        __syncthreads();
        for (int c = 0; c < end; c++) {
            W of_x[B::EACH], of_y[B::EACH];
            take(of_x, &room.slab[0][c][y * B::EACH]);
            take(of_y, &room.slab[1][c][x * B::EACH]);
            UNROLL for (int i = 0; i < B::EACH; i++)
                UNROLL for (int j = 0; j < B::EACH; j++) s[i][j] += of_x[i] * of_y[j];
        }
    }
}

/* sum[i][n EACH + j] += row y EACH + i of P . column c0 + (n SIDE + x) EACH + j of Z.  P, in shared memory, may have
 * been written just before. */
template <typename B, int SIDE, int SPANS, typename W, typename T>
__device__ __forceinline__ void accumulate(W (&sum)[B::EACH][B::EACH * SPANS], const W (&P)[B::TILE][B::LD],
                                           typename B::room &room, matrix_rows<T> Z, int64_t c0)
{
    const int x = threadIdx.x, y = threadIdx.y, me = y * (int)blockDim.x + x;
    W *z = &room.slab[0][0][0];
    for (int first = 0; first < B::TILE && first < Z.rows; first += B::KEPT) {
        __syncthreads();
        for (int i = me; i < B::KEPT * B::WIDTH; i += B::THREADS) {
            const int row = i / B::WIDTH, column = i % B::WIDTH;
            const bool is = first + row < Z.rows && c0 + column < Z.columns;
            z[i] = is ? widen(Z.first[(first + row) * Z.ld + c0 + column]) : (W)0;
        }
        __syncthreads();
        if (c0 + x * B::EACH >= Z.columns) continue;    /* all of its columns are behind the last */
        for (int k = 0; k < B::KEPT; k += B::EACH) {
            W p[B::EACH][B::EACH];
            UNROLL for (int i = 0; i < B::EACH; i++) take(p[i], &P[y * B::EACH + i][first + k]);
            UNROLL for (int r = 0; r < B::EACH; r++)
                UNROLL for (int n = 0; n < SPANS; n++) {
                    W of_z[B::EACH];
                    take(of_z, z + (k + r) * B::WIDTH + (n * SIDE + x) * B::EACH);
                    UNROLL for (int i = 0; i < B::EACH; i++)
                        UNROLL for (int j = 0; j < B::EACH; j++) sum[i][n * B::EACH + j] += p[i][r] * of_z[j];
                }
        }
    }
}

/* f(row, column, sum) for each element of the sums that the thread has, up to `rows` and `columns`. */
template <typename B, int SIDE, int SPANS, typename W, typename F>
__device__ __forceinline__ void for_sums(const W (&sum)[B::EACH][B::EACH * SPANS], int64_t rows, int64_t c0,
                                         int64_t columns, F f)
{
    UNROLL for (int i = 0; i < B::EACH; i++)
        UNROLL for (int n = 0; n < SPANS; n++)
            UNROLL for (int j = 0; j < B::EACH; j++) {
                const int row = threadIdx.y * B::EACH + i;
                const int64_t column = c0 + (n * SIDE + threadIdx.x) * B::EACH + j;
                if (row < rows && column < columns) f(row, column, sum[i][n * B::EACH + j]);
            }
}

/* ---- which tiles there are --------------------------------------------------------------------------------------- */

/* The keys that a tile of queries from q0 on may see, in whole tiles. */
template <int TILE> __device__ __forceinline__ int64_t first_key(const struct cuda_attention &a, int64_t q0)
{
    return a.window > 0 && q0 + 1 > a.window ? (q0 + 1 - a.window) / TILE * TILE : 0;
}
template <int TILE> __device__ __forceinline__ int64_t end_key(const struct cuda_attention &a, int64_t q0)
{
    return a.mask == NULL && q0 + TILE < a.S ? q0 + TILE : a.S;
}
/* And the queries that may see a tile of keys from k0 on. */
template <int TILE> __device__ __forceinline__ int64_t first_query(const struct cuda_attention &a, int64_t k0)
{
    return a.mask == NULL ? k0 : 0;
}
template <int TILE> __device__ __forceinline__ int64_t end_query(const struct cuda_attention &a, int64_t k0)
{
    return a.window > 0 && k0 + TILE - 1 + a.window < a.S ? k0 + TILE - 1 + a.window : a.S;
}

/* A grid: tiles of S rows for each span of A columns, heads, sequences. */
template <typename B> static dim3 attention_grid(int64_t S, int64_t A, int64_t heads, int64_t sequences)
{
    return dim3((unsigned)(blocks_of(S, B::TILE) * blocks_of(A, B::WIDTH)), (unsigned)heads, (unsigned)sequences);
}
/* The block's first row, and its first column.  Where late rows have the most to do, blocks take them first. */
struct tile_at { int64_t row, column; };
template <typename B> __device__ __forceinline__ tile_at tile_here(int64_t A, bool late_first)
{
    const unsigned spans = (unsigned)((A + B::WIDTH - 1) / B::WIDTH);
    const unsigned i = late_first ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return { (int64_t)(i / spans) * B::TILE, (int64_t)(i % spans) * B::WIDTH };
}

/* f<T, SIDE, SPANS>: 8 x 8 threads for short sequences, which 16 x 16 would not fill; and wider sums for wide heads, so
 * that scores are not computed again for a second span of columns. */
#define BY_TILE(W, a, f, ...)                                                                                          \
    do {                                                                                                               \
        if ((a).S <= 8 * EACH_OF<W>)                                                                                   \
            (a).A <= 8 * EACH_OF<W> ? f<T, 8, 1>(__VA_ARGS__) : f<T, 8, 2>(__VA_ARGS__);                               \
        else                                                                                                           \
            (a).A <= 16 * EACH_OF<W> ? f<T, 16, 1>(__VA_ARGS__) : f<T, 16, 2>(__VA_ARGS__);                            \
    } while (0)

#endif
