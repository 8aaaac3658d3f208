/* row_sums.h -- rows of a token's experts, added without rounding: any device may add any of them.
 *
 * Each weighted row is computed in fp32, as in ref/ops/gather.c, which includes this file for the arithmetic of
 * ref/exact/ (real.h: X32).  If there is no memory for the sums, the program is aborted, as in products.c.
 */
#ifndef ORRERY_ROW_SUMS_H
#define ORRERY_ROW_SUMS_H

#include "ref/exact/unrounded.h"
#include "ref/numeric/fixed_sum.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* sum [N, width] = the sums of columns d0.. over rows r of token place[r] / k, with weights w[place[r]], if any. */
static inline void row_sums_add(fixed_sum *sum, struct tensor rows, const int32_t *place, const real *w, int64_t k,
                                int64_t d0, int64_t width)
{
    const int64_t D = tensor_cols(rows);
    for (int64_t r = 0; r < tensor_rows(rows); r++) {
        const real factor = w != NULL ? w[place[r]] : 1;
        fixed_sum *const of = sum + place[r] / k * width;
        for (int64_t d = 0, at = r * D + d0; d < width; d++, at++) {
            const fixed_sum term = rows.dtype == EXACT ? fixed_at(rows.data, at)
                : fixed_of((double)(factor * CONST_DATA(rows)[at]));
            of[d] = fixed_add(of[d], term);
        }
    }
}

/* Y [N, D] = these sums, rounded once unless Y is EXACT.  Threads split the columns. */
static inline void row_sums_scatter(struct tensor Y, struct tensor rows, const int32_t *place, const real *w, int64_t k)
{
    const int64_t N = tensor_rows(Y), D = tensor_cols(Y);
    fixed_sum *const kept = Y.dtype == EXACT ? NULL : unrounded_room(Y, 0, NULL);
    #pragma omp parallel for schedule(static) if (tensor_rows(rows) * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        fixed_sum *const sum = calloc((size_t)(N * width) + 1, sizeof *sum);
        if (sum == NULL) fprintf(stderr, "orrery: no memory for sums of %lld rows\n", (long long)N), abort();
        row_sums_add(sum, rows, place, w, k, d0, width);
        for (int64_t i = 0; i < N * width; i++) {
            const int64_t at = i / width * D + d0 + i % width;
            if (kept) kept[at] = sum[i];
            if (Y.dtype == EXACT) fixed_put(Y.data, at, sum[i]);
            else DATA(Y)[at] = (real)fixed_to_odd(sum[i]);
        }
        free(sum);
    }
}

#endif
