/* attention_scores: attention that stores its scores, all of a query's side by side: each step of it is an operation.
 *
 * Source      A. Vaswani et al., "Attention is all you need", arXiv:1706.03762; for sequences that are cut:
 *             S. Li et al., "Sequence parallelism", arXiv:2105.13120
 * Shapes      X, P, dX [BHn,S]: for each head and each of n queries a number for each token of its sequence;
 *             L [Bn, >=HA], R [Bk,KA]: of k tokens of each sequence, from `first` on;  dR [BS,KA]
 * Scores      X = scale m (L R^T)  in columns first ..      scores: queries, keys, capped (soft_cap.c);  dP: dO, values
 * Softmax     P = exp(x - max) / sum of these, over the tokens that the query sees; 0 for others
 *             backward: dX = P (dP - sum_tokens(P dP)), times the slope of the cap at the score log(P) + lse.  Where
 *             P is 0 the slope does not matter
 * Times       Y += scale (m X) R  of columns first ..       output: P, values;  dQ: dX, keys
 * Transposed  dR = scale (m X)^T L                          dV: P, dO;  dK: dX, queries
 *             m by dropout's rule, as in attention.c
 * Memory      a TILE x TILE tile on each thread's stack
 * Rounding    tokens in order, tile by tile; dR: query heads in order, then queries in order.  One thread computes each
 *             tile as one product, so the bits do not depend on the number of threads.
 * Called      ref/ops/ops.def lists the operations.  Devices call each as dev_NAME (device/compute.h).  No function
 *             returns an error code.
 */
#include "ref/ops/attention_rows.h"
#include "ref/ops/gemm.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/soft_cap.h"
#include "ref/ops/table.h"
#include <string.h>

/* Scores of n queries, and `keys` tokens of each sequence from `first` on. */
struct stored { struct tensor X, q_at; struct attention a; int64_t B, n, first, keys; };

static struct stored FN(stored)(struct tensor X, int64_t first, int64_t rows, struct tensor q_at, struct attention a)
{
    struct stored s = { X, q_at, a, 0, tensor_count(q_at), first, 0 };
    s.B = a.H * s.n > 0 ? tensor_rows(X) / (a.H * s.n) : 0;
    s.keys = s.B > 0 ? rows / s.B : 0;
    assert(s.B == 0 || (tensor_rows(X) == s.B * a.H * s.n && tensor_cols(X) == a.S && rows == s.B * s.keys));
    assert(s.B == 0 || (a.K > 0 && a.H % a.K == 0 && first >= 0 && first + s.keys <= a.S));
    return s;
}

/* Without threads here, products must be too small for the BLAS to start its own, as in attention.c. */
static bool FN(many)(const struct stored *s) { return s->B * s->a.H * s->n * s->keys * s->a.A > PARALLEL_FROM; }

static int64_t attention_scores_least(int64_t x, int64_t y) { return x < y ? x : y; }

/* Query q0 and token k0 of those of a call, of one head. */
static real *FN(score_at)(const struct stored *s, int64_t b, int64_t h, int64_t q0, int64_t k0)
{
    return DATA(s->X) + ((b * s->a.H + h) * s->n + q0) * s->a.S + s->first + k0;
}

/* tile = m X. */
static void FN(take)(real *tile, const struct stored *s, int64_t b, int64_t h, int64_t q0, int64_t rows, int64_t k0,
                     int64_t cols)
{
    const struct head t = head_places(&s->a, s->q_at, b, h);
    for (int64_t r = 0; r < rows; r++)
        memcpy(tile + r * TILE, FN(score_at)(s, b, h, q0 + r, k0), (size_t)cols * sizeof(real));
    FN(attention_drop)(tile, TILE, &t, &s->a, q0, rows, s->first + k0, cols);
}

static const real *FN(key_of)(struct tensor R, const struct stored *s, int64_t b, int64_t h, int64_t k0)
{
    return CONST_DATA(R) + (b * s->keys + k0) * s->a.K * s->a.A + h / (s->a.H / s->a.K) * s->a.A;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

void FN(attention_scores)(struct tensor X, int64_t first, struct tensor L, struct tensor R, struct tensor q_at,
                          struct attention a)
{
    const struct stored s = FN(stored)(X, first, tensor_rows(R), q_at, a);
    const int64_t ld = tensor_cols(L);

    #pragma omp parallel for collapse(3) if (FN(many)(&s))
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < a.H; h++)
            for (int64_t q0 = 0; q0 < s.n; q0 += TILE) {
                const struct head t = head_places(&a, q_at, b, h);
                const real *l = CONST_DATA(L) + (b * s.n + q0) * ld + h * a.A;
                for (int64_t k0 = 0; k0 < s.keys; k0 += TILE) {
                    const int64_t rows = attention_scores_least(s.n - q0, TILE),
                        cols = attention_scores_least(s.keys - k0, TILE);
                    real *x = FN(score_at)(&s, b, h, q0, k0);
                    FN(gemm)(AS_IS, TRANSPOSED, rows, cols, a.A, a.scale, l, ld, FN(key_of)(R, &s, b, h, k0),
                             a.K * a.A, 0, x, a.S);
                    for (int64_t r = 0; r < rows && a.cap > 0; r++) FN(cap_row)(x + r * a.S, (real)a.cap, cols);
                    FN(attention_drop)(x, a.S, &t, &a, q0, rows, first + k0, cols);
                }
            }
}

void FN(attention_softmax)(struct tensor X, struct tensor lse, struct tensor q_at, struct attention a)
{
    const struct stored s = FN(stored)(X, 0, 0, q_at, a);
    assert(!tensor_present(a.sinks));

    #pragma omp parallel for collapse(3) if (tensor_count(X) > PARALLEL_FROM)
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < a.H; h++)
            for (int64_t q = 0; q < s.n; q++) {
                const struct head t = head_places(&a, q_at, b, h);
                const real sum = FN(attention_row_softmax)(FN(score_at)(&s, b, h, q, 0), &t, &a, q);
                if (tensor_present(lse)) DATA(lse)[(b * a.H + h) * s.n + q] = sum;
            }
}

void FN(attention_scores_times)(struct tensor Y, struct tensor X, int64_t first, struct tensor R, struct tensor q_at,
                                struct attention a)
{
    const struct stored s = FN(stored)(X, first, tensor_rows(R), q_at, a);
    const int64_t ld = tensor_cols(Y);

    #pragma omp parallel for collapse(3) if (FN(many)(&s))
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < a.H; h++)
            for (int64_t q0 = 0; q0 < s.n; q0 += TILE) {
                real tile[TILE * TILE], *y = DATA(Y) + (b * s.n + q0) * ld + h * a.A;
                for (int64_t k0 = 0; k0 < s.keys; k0 += TILE) {
                    const int64_t rows = attention_scores_least(s.n - q0, TILE),
                        cols = attention_scores_least(s.keys - k0, TILE);
                    FN(take)(tile, &s, b, h, q0, rows, k0, cols);
                    FN(gemm)(AS_IS, AS_IS, rows, a.A, cols, a.scale, tile, TILE, FN(key_of)(R, &s, b, h, k0),
                             a.K * a.A, 1, y, ld);
                }
            }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

void FN(attention_softmax_backward)(struct tensor dX, struct tensor P, struct tensor lse, struct attention a)
{
    const int64_t rows = tensor_rows(P), n = tensor_cols(P);
    assert(tensor_count(dX) == tensor_count(P) && (a.cap == 0 || tensor_count(lse) == rows));

    #pragma omp parallel for if (rows * n > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const real *p = CONST_DATA(P) + r * n;
        real *dx = DATA(dX) + r * n;
        const real mean = FN(dot)(p, dx, n);
        for (int64_t i = 0; i < n; i++) dx[i] = p[i] * (dx[i] - mean);
        for (int64_t i = 0; i < n && a.cap > 0; i++)
            if (p[i] > 0) dx[i] *= FN(cap_slope)(REAL_FN(log)(p[i]) + CONST_DATA(lse)[r], (real)a.cap);
    }
}

/* One thread computes some rows of a key/value head, so that their sums run in order. */
void FN(attention_scores_transposed)(struct tensor dR, struct tensor X, struct tensor L, struct tensor q_at,
                                     struct attention a)
{
    const struct stored s = FN(stored)(X, 0, tensor_rows(dR), q_at, a);
    const int64_t ld = tensor_cols(L), group = a.H / a.K, width = a.K * a.A;

    #pragma omp parallel for collapse(3) if (FN(many)(&s))
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t kv = 0; kv < a.K; kv++)
            for (int64_t k0 = 0; k0 < a.S; k0 += TILE) {
                const int64_t cols = attention_scores_least(a.S - k0, TILE);
                real tile[TILE * TILE], *d = DATA(dR) + (b * a.S + k0) * width + kv * a.A;
                for (int64_t h = kv * group; h < (kv + 1) * group; h++)
                    for (int64_t q0 = 0; q0 < s.n; q0 += TILE) {
                        const int64_t rows = attention_scores_least(s.n - q0, TILE);
                        FN(take)(tile, &s, b, h, q0, rows, k0, cols);
                        FN(gemm)(TRANSPOSED, AS_IS, cols, a.A, rows, a.scale, tile, TILE,
                                 CONST_DATA(L) + (b * s.n + q0) * ld + h * a.A, ld, h > kv * group || q0 > 0, d, width);
                    }
            }
}
