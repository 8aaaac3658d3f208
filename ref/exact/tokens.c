/* tokens.c -- gradients of embeddings, norms and sinks with exact sums over tokens, and the sum of two such sums.
 *
 * Source    the formulas of ref/ops/add.c, embedding.c, layernorm.c, rmsnorm.c, head_norm.c and attention_sinks.c;
 *           sums: docs/checking/exact.md
 * Shapes    as there; dW, dw, db and dsinks are EXACT; columns of a bias's gradient as in linear.c
 * Rounding  each term is computed in fp32 as there, and added without rounding
 * Called    ref/ops/ops.def lists the operations; ops_exact returns them.  Nothing fails.
 */
#include "ref/exact/terms.h"
#include "ref/ops/exp.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

static inline void add_term(struct tensor sums, int64_t i, real term)
{
    fixed_put(sums.data, i, fixed_add(fixed_at(sums.data, i), fixed_of((double)term)));
}

static inline int64_t token_few(int64_t first, int64_t count, int64_t most)
{
    return count - first < most ? count - first : most;
}

/* Threads split the columns. */
void FN(column_sums)(struct tensor db, struct tensor dY)
{
    const int64_t N = tensor_rows(dY), O = tensor_cols(dY);
    assert(db.dtype == EXACT && tensor_count(db) == O);

    #pragma omp parallel for schedule(static) if (N * O > PARALLEL_FROM)
    for (int64_t o0 = 0; o0 < O; o0 += TERM_COLUMNS)
        for (int64_t n0 = 0; n0 < N; n0 += TERMS_AT_ONCE) {
            const int64_t rows = token_few(n0, N, TERMS_AT_ONCE), width = token_few(o0, O, TERM_COLUMNS);
            real term[TERMS_AT_ONCE * TERM_COLUMNS];
            for (int64_t n = 0; n < rows; n++)
                memcpy(term + n * TERM_COLUMNS, CONST_DATA(dY) + (n0 + n) * O + o0, (size_t)width * sizeof *term);
            term_columns((char *)db.data + o0 * (int64_t)sizeof(fixed_sum), term, rows, width);
        }
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
    for (int64_t d0 = 0; d0 < D; d0 += TERM_COLUMNS)
        for (int64_t n0 = 0; n0 < N; n0 += TERMS_AT_ONCE) {
            const int64_t rows = token_few(n0, N, TERMS_AT_ONCE), width = token_few(d0, D, TERM_COLUMNS);
            real term[TERMS_AT_ONCE * TERM_COLUMNS];
            /* dw[d] += dY (X rstd) */
            for (int64_t n = 0; n < rows; n++)
                for (int64_t d = 0, at = (n0 + n) * D + d0; d < width; d++, at++)
                    term[n * TERM_COLUMNS + d] =
                        CONST_DATA(dY)[at] * (CONST_DATA(X)[at] * CONST_DATA(rstd)[n0 + n]);
            term_columns((char *)dw.data + d0 * (int64_t)sizeof(fixed_sum), term, rows, width);
        }
}

void FN(layernorm_backward_weight)(struct tensor dw, struct tensor db, struct tensor dY, struct tensor X,
                                   struct tensor mean, struct tensor rstd)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(dw.dtype == EXACT && tensor_count(dw) == D && (!tensor_present(db) || tensor_count(db) == D));

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += TERM_COLUMNS)
        for (int64_t n0 = 0; n0 < N; n0 += TERMS_AT_ONCE) {
            const int64_t rows = token_few(n0, N, TERMS_AT_ONCE), width = token_few(d0, D, TERM_COLUMNS);
            real term[TERMS_AT_ONCE * TERM_COLUMNS];
            /* dw[d] += dY ((X - mean) rstd) */
            for (int64_t n = 0; n < rows; n++)
                for (int64_t d = 0, at = (n0 + n) * D + d0; d < width; d++, at++)
                    term[n * TERM_COLUMNS + d] = CONST_DATA(dY)[at]
                        * ((CONST_DATA(X)[at] - CONST_DATA(mean)[n0 + n]) * CONST_DATA(rstd)[n0 + n]);
            term_columns((char *)dw.data + d0 * (int64_t)sizeof(fixed_sum), term, rows, width);
        }
    if (tensor_present(db)) FN(column_sums)(db, dY);
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
