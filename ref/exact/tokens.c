/* tokens.c -- gradients of embeddings, norms and sinks with exact sums over tokens, and the sum of two such sums.
 *
 * Source    the formulas of ref/ops/add.c, embedding.c, layernorm.c, rmsnorm.c, head_norm.c and attention_sinks.c;
 *           sums: docs/checking/exact.md
 * Shapes    as there; dW, dw, db and dsinks are EXACT
 * Rounding  each term is computed in fp32 as there, and added without rounding
 * Called    ref/ops/ops.def lists the operations; ops_exact returns them.  Nothing fails.
 */
#include "ref/numeric/fixed_sum.h"
#include "ref/ops/exp.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

static inline void add_term(struct tensor sums, int64_t i, real term)
{
    fixed_put(sums.data, i, fixed_add(fixed_at(sums.data, i), fixed_of((double)term)));
}

/* Y = X + Z: of numbers rounded once, of EXACT sums not at all.  Y may be X or Z. */
void FN(add)(struct tensor Y, struct tensor X, struct tensor Z)
{
    const int64_t count = tensor_count(Y);
    assert(X.dtype == Y.dtype && Z.dtype == Y.dtype);

    if (Y.dtype == EXACT) {
        #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
        for (int64_t i = 0; i < count; i++) fixed_put(Y.data, i, fixed_add(fixed_at(X.data, i), fixed_at(Z.data, i)));
        return;
    }
    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) DATA(Y)[i] = CONST_DATA(X)[i] + CONST_DATA(Z)[i];
}

/* Threads split the columns. */
void FN(embedding_backward_weight)(struct tensor dW, struct tensor dY, struct tensor ids, int64_t first)
{
    const int64_t N = tensor_count(ids), D = tensor_cols(dY), rows = tensor_rows(dW);
    const int32_t *id = ids.data;
    assert(ids.dtype == I32 && dW.dtype == EXACT && tensor_cols(dW) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK)
        for (int64_t n = 0; n < N; n++) {
            const int64_t row = id[n] - first, end = d0 + COLUMN_BLOCK < D ? d0 + COLUMN_BLOCK : D;
            /* dW[ids[n] - first,:] += dY[n,:] */
            for (int64_t d = d0; d < end && row >= 0 && row < rows; d++)
                add_term(dW, row * D + d, CONST_DATA(dY)[n * D + d]);
        }
}

void FN(rmsnorm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(dw.dtype == EXACT && tensor_count(dw) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d = 0; d < D; d++)
        /* dw[d] += dY (X rstd) */
        for (int64_t n = 0; n < N; n++)
            add_term(dw, d, CONST_DATA(dY)[n * D + d] * (CONST_DATA(X)[n * D + d] * CONST_DATA(rstd)[n]));
}

void FN(layernorm_backward_weight)(struct tensor dw, struct tensor db, struct tensor dY, struct tensor X,
                                   struct tensor mean, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(dw.dtype == EXACT && tensor_count(dw) == D && (!tensor_present(db) || tensor_count(db) == D));

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d = 0; d < D; d++)
        for (int64_t n = 0; n < N; n++) {
            const real dy = CONST_DATA(dY)[n * D + d];
            /* dw[d] += dY ((X - mean) rstd), db[d] += dY */
            add_term(dw, d, dy * ((CONST_DATA(X)[n * D + d] - CONST_DATA(mean)[n]) * CONST_DATA(rstd)[n]));
            if (tensor_present(db)) add_term(db, d, dy);
        }
}

void FN(head_norm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd,
                                   struct attention a)
{
    const struct normed_heads p = normed_heads(a);
    const int64_t N = tensor_rows(X), ld = tensor_cols(X);
    assert(dw.dtype == EXACT && tensor_count(dw) == p.queries + p.keys);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t i = 0; i < p.queries + p.keys; i++) {
        const bool query = i < p.queries;
        const int64_t first = query ? 0 : p.first, end = query ? p.first : p.count;
        for (int64_t n = 0; n < N; n++)
            for (int64_t h = first; h < end; h++) {
                /* Pieces of queries lie side by side, then those of keys. */
                const int64_t piece = query ? h * p.queries + i : p.first * p.queries + (h - p.first) * p.keys + i
                                              - p.queries, at = n * ld + piece;
                add_term(dw, i, CONST_DATA(dY)[at] * (CONST_DATA(X)[at] * CONST_DATA(rstd)[n * p.count + h]));
            }
    }
}

/* Threads split the heads. */
void FN(attention_sinks_backward)(struct tensor dsinks, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct attention a)
{
    const int64_t N = tensor_rows(O), H = a.H, n = tensor_cols(lse);
    assert(dsinks.dtype == EXACT && tensor_count(dsinks) == H && tensor_count(lse) == N * H);

    #pragma omp parallel for schedule(static) if (N * H * a.A > PARALLEL_FROM)
    for (int64_t h = 0; h < H; h++)
        for (int64_t row = 0; row < N; row++) {
            const int64_t o = (row * H + h) * a.A, l = (row / n * H + h) * n + row % n;
            const real p = FN(fast_exp)(CONST_DATA(a.sinks)[h] - CONST_DATA(lse)[l]);
            /* dsink -= p D */
            add_term(dsinks, h, -(p * FN(dot)(CONST_DATA(dO) + o, CONST_DATA(O) + o, a.A)));
        }
}
