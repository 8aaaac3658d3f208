/* loss.c -- cross-entropy whose sums do not depend on how the vocabulary and the tokens are cut.
 *
 * Source    the formulas of ref/ops/cross_entropy.c; sums: docs/checking/exact.md
 * Shapes    as there; total and hit are fp64
 * Forward   each exp(logit - top), at most 1, is an integer times 2^-34: total is exact in fp64 up to 2^19 entries
 *           each token's loss is an integer times 2^-28: their sum is exact in fp64 up to 2^20 tokens of loss 32; a
 *           loss of 2^23, or one that is not finite, makes the sum NaN
 * Backward  dlogits in fp32, from the total rounded to fp32
 * Called    ref/ops/ops.def lists the operations; ops_exact returns them.  Nothing fails.
 */
#include "ref/exact/grid.h"
#include "ref/ops/exp.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

void FN(cross_entropy_sums)(struct tensor total, struct tensor hit, struct tensor logits, struct tensor top,
                            struct tensor labels, int64_t first)
{
    const int64_t N = tensor_count(top), V = tensor_cols(logits);
    assert(total.dtype == F64 && hit.dtype == F64 && tensor_count(total) == N && tensor_count(hit) == N);

    #pragma omp parallel for schedule(static) if (N * V > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *x = CONST_DATA(logits) + n * V, highest = CONST_DATA(top)[n];
        const int64_t column = ((const int32_t *)labels.data)[n] - first;
        double sum = 0;
        /* total = the sum of integers below 2^34, exact in any order. */
        for (int64_t v = 0; v < V; v++) sum += grid_round((double)FN(fast_exp)(x[v] - highest) * KEY_GRID);
        ((double *)total.data)[n] = sum * (1 / KEY_GRID);
        ((double *)hit.data)[n] = column >= 0 && column < V ? (double)x[column] : 0;
    }
}

void FN(cross_entropy_loss)(double *loss, struct tensor total, struct tensor top, struct tensor hit,
                            struct tensor labels, int ignore)
{
    const int64_t N = tensor_count(labels);
    const int32_t *label = labels.data;
    double sum = 0;
    for (int64_t n = 0; n < N; n++)
        if (label[n] != ignore) {
            const double one = exact_log(((const double *)total.data)[n]) + (double)CONST_DATA(top)[n]
                               - ((const double *)hit.data)[n];
            if (!(one * LOSS_GRID < 0x1p51)) {
                fixed_lose(one < (double)INFINITY ? FIXED_BEYOND : FIXED_NOT_FINITE);
                *loss = (double)NAN;
                return;
            }
            sum += grid_round(one * LOSS_GRID);
        }
    *loss = sum * (1 / LOSS_GRID);
}

void FN(cross_entropy_backward)(struct tensor dlogits, struct tensor logits, struct tensor total, struct tensor top,
                                struct tensor labels, int64_t first, int ignore, double scale)
{
    const int64_t N = tensor_count(labels), V = tensor_cols(logits);

    #pragma omp parallel for schedule(static) if (N * V > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const int32_t label = ((const int32_t *)labels.data)[n];
        const int64_t column = label - first;
        const real *const x = CONST_DATA(logits) + n * V;
        const real highest = CONST_DATA(top)[n], factor = (real)scale / (real)((const double *)total.data)[n];
        real *const dx = DATA(dlogits) + n * V;
        /* dlogits = scale (exp(logits - top) / total - [column is the label]), 0 in ignored rows */
        for (int64_t v = 0; v < V; v++) dx[v] = label == ignore ? 0 : FN(fast_exp)(x[v] - highest) * factor;
        if (label != ignore && column >= 0 && column < V) dx[column] -= (real)scale;
    }
}
