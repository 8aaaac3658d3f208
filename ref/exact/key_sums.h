/* key_sums.h -- gradients of a key/value head, added over the query heads that use the head without rounding.
 *
 * Each query head's part is computed in fp32, as ref/ops/attention.c has its order; the sum over query heads is exact,
 * so devices that share a group of query heads (schemes/tensor/heads.c) may add their parts in any order.
 * ref/ops/attention.c includes this file for the arithmetic of ref/exact/ (real.h: X32).  If there is no memory, the
 * program is aborted, as in products.c.
 */
#ifndef ORRERY_KEY_SUMS_H
#define ORRERY_KEY_SUMS_H

#include "ref/numeric/fixed_sum.h"
#include "ref/ops/real.h"
#include <stdio.h>
#include <stdlib.h>

/* A query head's part, rows [keys, 2A] of a key and a value, and the sum of the parts so far. */
struct key_sums { real *part; fixed_sum *sum; int64_t keys, A; };

static inline struct key_sums key_sums_begin(int64_t keys, int64_t A)
{
    const size_t count = (size_t)(keys * 2 * A);
    struct key_sums sums = { malloc(count * sizeof(real) + 1), calloc(count + 1, sizeof(fixed_sum)), keys, A };
    if (sums.part == NULL || sums.sum == NULL)
        fprintf(stderr, "orrery: no memory for the gradients of %lld keys\n", (long long)keys), abort();
    return sums;
}

/* The part is 0 before a query head adds to it. */
static inline void key_sums_clear(struct key_sums *sums)
{
    for (int64_t i = 0; i < sums->keys * 2 * sums->A; i++) sums->part[i] = 0;
}

static inline void key_sums_add(struct key_sums *sums)
{
    for (int64_t i = 0; i < sums->keys * 2 * sums->A; i++)
        sums->sum[i] = fixed_add(sums->sum[i], fixed_of((double)sums->part[i]));
}

/* dKV += the sum, in the columns of a key from `key` on, and of its value from `value` on: not rounded if dKV is
 * EXACT, else rounded once. */
static inline void key_sums_give(struct key_sums *sums, struct tensor dKV, int64_t row, int64_t key, int64_t value)
{
    const int64_t A = sums->A;
    for (int64_t i = 0; i < sums->keys * 2 * A; i++) {
        const int64_t column = i % (2 * A), at = (row + i / (2 * A)) * tensor_cols(dKV)
            + (column < A ? key + column : value + column - A);
        if (dKV.dtype == EXACT) fixed_put(dKV.data, at, fixed_add(fixed_at(dKV.data, at), sums->sum[i]));
        else DATA(dKV)[at] = (real)fixed_to_odd(fixed_add(fixed_of((double)DATA(dKV)[at]), sums->sum[i]));
    }
    free(sums->part), free(sums->sum);
}

#endif
