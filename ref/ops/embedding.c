/* embedding: a row of a table for each token.
 *
 * Source    Y. Bengio, R. Ducharme, P. Vincent, C. Jauvin, "A neural probabilistic language model", JMLR 3:1137-1155
 *           (2003), https://jmlr.org/papers/v3/bengio03a.html
 * Shapes    ids I32 [N];  W, dW [V',D], the rows first .. first+V'-1 of the whole table;  Y, dY [N,D]
 * Forward   Y[n,:]  = W[ids[n] - first,:], or 0 where the row is not in the slice: slices sum to the whole
 * Backward  dW[ids[n] - first,:] += dY[n,:]
 * Rounding  forward copies bits (accumulate: adds once).  dW adds the rows of equal id in order of n.
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(embedding_forward)(struct tensor Y, struct tensor ids, struct tensor W, int64_t first, bool accumulate)
{
    const int64_t N = tensor_count(ids), D = tensor_cols(Y), rows = tensor_rows(W);
    const int32_t *id = ids.data;
    assert(ids.dtype == I32 && tensor_rows(Y) == N && tensor_cols(W) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const int64_t row = id[n] - first;
        const bool here = row >= 0 && row < rows;
        const real *restrict w = CONST_DATA(W) + (here ? row * D : 0);
        real *restrict y = DATA(Y) + n * D;
        if (here && accumulate)
            for (int64_t d = 0; d < D; d++) y[d] += w[d];
        else if (here)
            for (int64_t d = 0; d < D; d++) y[d] = w[d];
        else if (!accumulate)
            for (int64_t d = 0; d < D; d++) y[d] = 0;
    }
}

#ifndef SUMS_EXACTLY
/* Threads split the columns, so that the rows of tokens with equal ids are added in order. */
void FN(embedding_backward_weight)(struct tensor dW, struct tensor dY, struct tensor ids, int64_t first)
{
    const int64_t N = tensor_count(ids), D = tensor_cols(dY), rows = tensor_rows(dW);
    const int32_t *id = ids.data;
    assert(ids.dtype == I32 && tensor_rows(dY) == N && tensor_cols(dW) == D);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        for (int64_t n = 0; n < N; n++) {
            const int64_t row = id[n] - first;
            if (row < 0 || row >= rows) continue;
            const real *restrict dy = CONST_DATA(dY) + n * D + d0;
            real *restrict dw = DATA(dW) + row * D + d0;
            for (int64_t d = 0; d < width; d++) dw[d] += dy[d];
        }
    }
}
#endif
