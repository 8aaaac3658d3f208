/* soft_cap.h -- the soft cap of a number, and its derivative, for soft_cap.c and attention.  attention_rows.c and
 * attention_scores.c call these functions.  No function returns an error code. */
#ifndef ORRERY_OPS_SOFT_CAP_H
#define ORRERY_OPS_SOFT_CAP_H

#include "ref/ops/real.h"

static inline real FN(capped)(real x, real cap) { return cap * REAL_FN(tanh)(x / cap); }

/* The derivative where the capped number is y: 1 - tanh^2.  Of a score that is hidden, -infinity, 0. */
static inline real FN(cap_slope)(real y, real cap)
{
    const real t = y / cap;
    return t == -(real)INFINITY ? 0 : (1 - t) * (1 + t);
}

static inline void FN(cap_row)(real *x, real cap, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = FN(capped)(x[i], cap);
}

#endif
