/* reduction.h -- element-wise arithmetic of collectives, on memory of the host.
 *
 * generic.c calls this file for backends without a reduction of their own; collectives/ use its names.  No function
 * here can fail.
 */
#ifndef ORRERY_REDUCTION_H
#define ORRERY_REDUCTION_H

#include "ref/numeric/dtype.h"
#include <stdint.h>

#define REDUCTIONS(X) X(SUM, "sum") X(PRODUCT, "product") X(MAX, "max") X(MIN, "min") X(AVERAGE, "average")
enum reduction {
#define X(id, name) id,
    REDUCTIONS(X)
#undef X
    REDUCTION_COUNT
};
const char *reduction_name(enum reduction);

/** into[i] = into[i] (op) from[i]; AVERAGE adds.  MAX and MIN keep a NaN that either side has. */
void reduction_apply(enum reduction, enum dtype, void *into, const void *from, int64_t n);

/** into[i] = part[0][i] (op) part[1][i] (op) .., from the left: the bits of reduction_apply with one part after the
 *  other, in fewer passes over memory.  `into` is none of the parts, but may be the first.  parts >= 1. */
void reduction_all(enum reduction, enum dtype, void *into, const void *const *part, int parts, int64_t n);

/** x[i] = x[i] / by.  Integers round toward zero. */
void reduction_divide(enum dtype, void *x, int64_t n, int by);

#endif
