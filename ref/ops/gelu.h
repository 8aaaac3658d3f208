/* gelu.h -- gelu of a number and its derivative, for gelu.c and geglu.c.  No function returns an error code. */
#ifndef ORRERY_OPS_GELU_H
#define ORRERY_OPS_GELU_H

#include "ref/ops/exp.h"

#define SQRT_8_OVER_PI R(1.5957691216057307117597842397375)
#define CUBIC R(0.044715)

static inline real FN(gelu)(real x) { return x / (1 + FN(fast_exp)(-SQRT_8_OVER_PI * x * (1 + CUBIC * x * x))); }

/* Outside the clamp the derivative is 0 or 1 to within e^(-87) (e^(-602) in fp64).  Inside it neither e^(-2u) nor x^2
 * overflows, so infinity times 0 does not occur. */
static inline real FN(gelu_slope)(real x)
{
    const real limit = sizeof(real) == 4 ? 10 : 20;
    x = x < -limit ? -limit : x;
    x = x > limit ? limit : x;
    const real e = FN(fast_exp)(-SQRT_8_OVER_PI * x * (1 + CUBIC * x * x)), s = 1 / (1 + e);
    return s + x * s * (s * e) * (SQRT_8_OVER_PI * (1 + 3 * CUBIC * x * x));
}

#endif
