/* gather: sorts tokens by expert before a mixture's experts; combines the results afterwards.
 *
 * Source    T. Gale et al., "MegaBlocks: efficient sparse training with mixture-of-experts", arXiv:2211.15841: a
 *           permutation and grouped products, so that no token is dropped and nothing is padded
 * Shapes    experts I32 [N,k];  order I32 [R], R <= N k, each entry an index n k + i into experts;  counts I32 [E]
 *           X, dX [N,D];  rows, drows [R,D];  weights, dweights [N,k];  Y, dY [N,D]
 * Order     the indices of expert 0, then of expert 1, ..., for each expert in order of n;  counts: how many of each.
 *           A choice that is none of the E experts has no place in it
 * Gather    rows[r,:] = X[order[r]/k,:];                       dX[n,:] = sum over the r of token n of drows[r,:]
 * Combine   Y[n,:] = sum over the r of token n of weights[order[r]] rows[r,:];
 *           drows[r,:] = weights[order[r]] dY[n,:],  dweights[order[r]] = rows[r,:] . dY[n,:]
 *           A token without rows has Y, dX = 0; an index without a row has dweights = 0.  So the results of parts of
 *           the rows, as on expert-parallel devices, sum to the whole.
 * Rounding  gather copies bits.  The sums over r run in order of r, so in order of experts; each starts from 0.  With
 *           the sums of ref/exact/ those of k > 1 choices are exact (row_sums.h), and Y, dX and drows may be EXACT
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"
#include <string.h>

void FN(expert_order)(struct tensor order, struct tensor counts, struct tensor experts)
{
    const int64_t places = tensor_count(experts), E = tensor_count(counts);
    const int32_t *expert = experts.data;
    int32_t *count = counts.data, *next = order.data, *const end = next + tensor_count(order);
    assert(order.dtype == I32 && counts.dtype == I32 && tensor_count(order) <= places);

    for (int64_t e = 0; e < E; e++) {
        const int32_t *first = next;
        for (int64_t i = 0; i < places; i++)
            if (expert[i] == e && next < end) *next++ = (int32_t)i;
        count[e] = (int32_t)(next - first);
    }
}

void FN(gather_forward)(struct tensor rows, struct tensor X, struct tensor order, int64_t k)
{
    const int64_t R = tensor_count(order), D = tensor_cols(X);
    const int32_t *place = order.data;
    assert(tensor_rows(rows) == R && tensor_cols(rows) == D);

    #pragma omp parallel for schedule(static) if (R * D > PARALLEL_FROM)
    for (int64_t r = 0; r < R; r++)
        memcpy(DATA(rows) + r * D, CONST_DATA(X) + place[r] / k * D, (size_t)D * sizeof(real));
}

#ifdef SUMS_EXACTLY
#include "ref/exact/row_sums.h"
#endif

/* Y[n,:] = sum over r of w[order[r]] rows[r,:], or of rows[r,:] if there are no weights.  Threads split the columns, so
 * that the rows of a token are added in order. */
static void FN(scatter)(struct tensor Y, struct tensor rows, struct tensor order, const real *w, int64_t k)
{
    const int64_t R = tensor_count(order), D = tensor_cols(Y), N = tensor_rows(Y);
    const int32_t *place = order.data;
    assert(tensor_rows(rows) == R && tensor_cols(rows) == D);
#ifdef SUMS_EXACTLY
    if (k > 1 || rows.dtype == EXACT) {
        row_sums_scatter(Y, rows, place, w, k);
        return;
    }
#endif

    #pragma omp parallel for schedule(static) if (R * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        for (int64_t n = 0; n < N; n++) memset(DATA(Y) + n * D + d0, 0, (size_t)width * sizeof(real));
        for (int64_t r = 0; r < R; r++) {
            const real *restrict x = CONST_DATA(rows) + r * D + d0, factor = w ? w[place[r]] : 1;
            real *restrict y = DATA(Y) + place[r] / k * D + d0;
            for (int64_t d = 0; d < width; d++) y[d] += factor * x[d];
        }
    }
}

void FN(gather_backward_input)(struct tensor dX, struct tensor drows, struct tensor order, int64_t k)
{
    FN(scatter)(dX, drows, order, NULL, k);
}

void FN(combine_forward)(struct tensor Y, struct tensor rows, struct tensor order, struct tensor weights)
{
    assert(tensor_rows(weights) == tensor_rows(Y));
    FN(scatter)(Y, rows, order, CONST_DATA(weights), tensor_cols(weights));
}

void FN(combine_backward_input)(struct tensor drows, struct tensor dweights, struct tensor dY, struct tensor rows,
                                struct tensor order, struct tensor weights)
{
    const int64_t R = tensor_count(order), D = tensor_cols(dY), k = tensor_cols(weights);
    const int32_t *place = order.data;
    assert(tensor_rows(drows) == R && tensor_rows(rows) == R && tensor_count(dweights) == tensor_count(weights));
    if (tensor_count(dweights)) memset(dweights.data, 0, tensor_bytes(dweights));

    #pragma omp parallel for schedule(static) if (R * D > PARALLEL_FROM)
    for (int64_t r = 0; r < R; r++) {
        const real *restrict dy = CONST_DATA(dY) + place[r] / k * D, *restrict x = CONST_DATA(rows) + r * D;
        const real w = CONST_DATA(weights)[place[r]];
        real *restrict dx = DATA(drows) + r * D;
        DATA(dweights)[place[r]] = FN(dot)(x, dy, D);
        for (int64_t d = 0; d < D; d++) dx[d] = w * dy[d];
    }
}
