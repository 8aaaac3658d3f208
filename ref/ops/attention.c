/* attention: each token gets a weighted mean of the values of tokens up to itself; causal, several heads, grouped keys.
 *
 * Source    A. Vaswani et al., "Attention is all you need", arXiv:1706.03762; grouped queries: J. Ainslie et al.,
 *           arXiv:2305.13245; in tiles, with a running softmax: T. Dao et al., "FlashAttention", arXiv:2205.14135,
 *           algorithms 1 and 4
 * Shapes    QKV, dQKV [N, (H+2K)A], N = B S;  O, dO [N, HA];  lse [B,H,S]
 * Forward   s = scale q k^T  for keys at or before the query
 *           p = exp(s - lse),  lse = log(sum_keys exp(s))
 *           o = sum_keys(m p v),  m = 1/(1-p_drop) or 0 by dropout's rule (1 without dropout)
 * Backward  dv = sum_queries(m p do)
 *           ds = p (m do v^T - D),  D = do . o
 *           dq = scale sum_keys(ds k),  dk = scale sum_queries(ds q)
 *           p is computed again from lse; dk and dv of a group sum over all its query heads
 * Memory    two TILE x TILE tiles on each thread's stack; no row of scores is stored
 * Rounding  keys in order, tile by tile; dk, dv: query heads in order, then queries in order.  One thread computes each
 *           tile as one product, so the bits depend neither on the number of threads nor on the heads of a call.
 */
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/gemm.h"
#include "ref/ops/reduce.h"
#include "ref/numeric/philox.h"

enum { TILE = 64 };

/* One query head of one sequence; pointers to its row at token 0 in the tensors. */
struct head {
    const real *q, *k, *v;
    int64_t ld_qkv, ld_o;
    int64_t drop_row;           /* of query 0, in the matrix of probabilities of the whole model */
};

static struct head FN(head_at)(struct tensor QKV, struct attention a, int64_t b, int64_t h)
{
    const int64_t ld = (a.H + 2 * a.K) * a.A;
    const real *row = CONST_DATA(QKV) + b * a.S * ld;
    const int64_t kv = h / (a.H / a.K);
    return (struct head){ .q = row + h * a.A, .k = row + (a.H + kv) * a.A, .v = row + (a.H + a.K + kv) * a.A,
                          .ld_qkv = ld, .ld_o = a.H * a.A,
                          .drop_row = ((a.drop.row0 + b) * a.drop.cols + a.drop.col0 + h) * a.S };
}

static int64_t FN(sequences)(struct tensor QKV, struct attention a)
{
    assert(a.S >= 0 && a.H >= 0 && a.K >= 0 && a.A >= 0 && (a.K == 0 ? a.H == 0 : a.H % a.K == 0));
    assert(tensor_cols(QKV) == (a.H + 2 * a.K) * a.A && (a.S == 0 || tensor_rows(QKV) % a.S == 0));
    return a.S == 0 ? 0 : tensor_rows(QKV) / a.S;
}

/* Without threads here, products must be too small for the BLAS to start its own threads: it would split the sums in
 * another way, and the bits would differ. */
static bool FN(worth_threads)(int64_t B, struct attention a) { return B * a.H * a.S * a.S * a.A > PARALLEL_FROM; }

/* tile = scale Q K^T for queries q0.. and keys k0..; keys after the query become -infinity. */
static void FN(score_tile)(real *tile, struct head t, struct attention a, int64_t q0, int64_t rows, int64_t k0,
                           int64_t cols)
{
    FN(gemm)(AS_IS, TRANSPOSED, rows, cols, a.A, a.scale, t.q + q0 * t.ld_qkv, t.ld_qkv, t.k + k0 * t.ld_qkv, t.ld_qkv,
             0, tile, TILE);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = q0 + r + 1 - k0; c < cols; c++) tile[r * TILE + c] = -(real)INFINITY;
}

/* Multiply by the dropout factors of these queries and keys. */
static void FN(drop_tile)(real *tile, struct head t, struct attention a, int64_t q0, int64_t rows, int64_t k0,
                          int64_t cols)
{
    if (a.drop.p == 0) return;
    const real grow = (real)(1 / (1 - a.drop.p));
    for (int64_t r = 0; r < rows; r++) {
        float draw[TILE];
        random_uniforms(draw, cols, a.drop.seed, a.drop.stream, (uint64_t)((t.drop_row + q0 + r) * a.S + k0));
        for (int64_t c = 0; c < cols; c++) tile[r * TILE + c] *= draw[c] >= a.drop.p ? grow : 0;
    }
}

/* x = exp(x - top); returns the sum. */
static real FN(exp_row)(real *restrict x, real top, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = FN(fast_exp)(x[i] - top);
    return FN(sum)(x, n);
}

static void FN(scale_row)(real *restrict x, real factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* One block of queries with its keys.  o and lse point to token 0 of the head.  If a tile of keys raises a row's
 * maximum, the sums so far are multiplied by exp(old - new). */
static void FN(forward_block)(real *o, real *lse, struct head t, struct attention a, int64_t q0)
{
    const int64_t rows = a.S - q0 < TILE ? a.S - q0 : TILE, end = q0 + rows;
    real tile[TILE * TILE], top[TILE], total[TILE] = { 0 };
    for (int64_t r = 0; r < rows; r++) top[r] = -(real)INFINITY;

    for (int64_t k0 = 0; k0 < end; k0 += TILE) {
        const int64_t cols = end - k0 < TILE ? end - k0 : TILE;
        FN(score_tile)(tile, t, a, q0, rows, k0, cols);
        for (int64_t r = 0; r < rows; r++) {
            const real tile_top = FN(max)(tile + r * TILE, cols), new_top = tile_top > top[r] ? tile_top : top[r];
            const real shrink = FN(fast_exp)(top[r] - new_top);
            total[r] = total[r] * shrink + FN(exp_row)(tile + r * TILE, new_top, cols);
            if (k0 > 0 && shrink != 1) FN(scale_row)(o + (q0 + r) * t.ld_o, shrink, a.A);
            top[r] = new_top;
        }
        FN(drop_tile)(tile, t, a, q0, rows, k0, cols);
        FN(gemm)
        (AS_IS, AS_IS, rows, a.A, cols, 1, tile, TILE, t.v + k0 * t.ld_qkv, t.ld_qkv, k0 > 0, o + q0 * t.ld_o, t.ld_o);
    }
    for (int64_t r = 0; r < rows; r++) {
        FN(scale_row)(o + (q0 + r) * t.ld_o, 1 / total[r], a.A);
        lse[q0 + r] = top[r] + REAL_FN(log)(total[r]);
    }
}

/* Dynamic scheduling: blocks late in a sequence have more keys than early ones. */
void FN(attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a)
{
    const int64_t B = FN(sequences)(QKV, a), blocks = (a.S + TILE - 1) / TILE;
    assert(tensor_count(O) == B * a.S * a.H * a.A && tensor_count(lse) == B * a.H * a.S);

    #pragma omp parallel for collapse(3) schedule(dynamic) if (FN(worth_threads)(B, a))
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < a.H; h++)
            for (int64_t block = 0; block < blocks; block++)
                FN(forward_block)(DATA(O) + (b * a.S * a.H + h) * a.A, DATA(lse) + (b * a.H + h) * a.S,
                                  FN(head_at)(QKV, a, b, h), a, block * TILE);
}

static void FN(clear_columns)(real *x, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) x[r * ld + c] = 0;
}

/* One block of queries with its keys.  Adds to dq, dk, dv; these, o and d_o point to token 0 of the head. */
static void FN(backward_block)(real *dq, real *dk, real *dv, const real *d_o, const real *o, const real *lse,
                               struct head t, struct attention a, int64_t q0)
{
    const int64_t rows = a.S - q0 < TILE ? a.S - q0 : TILE, end = q0 + rows, ld = t.ld_qkv;
    real p[TILE * TILE], ds[TILE * TILE], D[TILE];
    for (int64_t r = 0; r < rows; r++) D[r] = FN(dot)(d_o + (q0 + r) * t.ld_o, o + (q0 + r) * t.ld_o, a.A);

    for (int64_t k0 = 0; k0 < end; k0 += TILE) {
        const int64_t cols = end - k0 < TILE ? end - k0 : TILE;
        FN(score_tile)(p, t, a, q0, rows, k0, cols);
        FN(gemm)(AS_IS, TRANSPOSED, rows, cols, a.A, 1, d_o + q0 * t.ld_o, t.ld_o, t.v + k0 * ld, ld, 0, ds, TILE);
        FN(drop_tile)(ds, t, a, q0, rows, k0, cols);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                const int64_t i = r * TILE + c;
                p[i] = FN(fast_exp)(p[i] - lse[q0 + r]);
                ds[i] = p[i] * (ds[i] - D[r]);
            }
        FN(gemm)(AS_IS, AS_IS, rows, a.A, cols, a.scale, ds, TILE, t.k + k0 * ld, ld, 1, dq + q0 * ld, ld);
        FN(gemm)(TRANSPOSED, AS_IS, cols, a.A, rows, a.scale, ds, TILE, t.q + q0 * ld, ld, 1, dk + k0 * ld, ld);
        FN(drop_tile)(p, t, a, q0, rows, k0, cols);
        FN(gemm)(TRANSPOSED, AS_IS, cols, a.A, rows, 1, p, TILE, d_o + q0 * t.ld_o, t.ld_o, 1, dv + k0 * ld, ld);
    }
}

/* One thread computes a key/value head of a sequence, so that its sums run in order. */
void FN(attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct tensor QKV, struct attention a)
{
    const int64_t B = FN(sequences)(QKV, a), ld = (a.H + 2 * a.K) * a.A, group = a.K > 0 ? a.H / a.K : 0;
    assert(tensor_count(dQKV) == tensor_count(QKV) && tensor_count(lse) == B * a.H * a.S);
    assert(tensor_count(O) == B * a.S * a.H * a.A && tensor_count(dO) == tensor_count(O));

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(worth_threads)(B, a))
    for (int64_t b = 0; b < B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            real *row = DATA(dQKV) + b * a.S * ld, *dk = row + (a.H + kv) * a.A, *dv = dk + a.K * a.A;
            FN(clear_columns)(dk, ld, a.S, a.A);
            FN(clear_columns)(dv, ld, a.S, a.A);
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                const int64_t o_at = (b * a.S * a.H + h) * a.A;
                FN(clear_columns)(row + h * a.A, ld, a.S, a.A);
                for (int64_t q0 = 0; q0 < a.S; q0 += TILE)
                    FN(backward_block)(row + h * a.A, dk, dv, CONST_DATA(dO) + o_at, CONST_DATA(O) + o_at,
                                       CONST_DATA(lse) + (b * a.H + h) * a.S, FN(head_at)(QKV, a, b, h), a, q0);
            }
        }
}
