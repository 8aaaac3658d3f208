/* exact gelu: x times the probability that a normal number is below x.  gelu.c has the tanh form.
 *
 * Source    D. Hendrycks, K. Gimpel, "Gaussian error linear units", arXiv:1606.08415
 * Shapes    X, Y, dX, dY the same, any;  dX may be dY
 * Forward   y  = x P,  P = erfc(-x / sqrt 2) / 2: without cancellation where erf is near -1
 * Backward  dx = dy (P + x p),  p = e^(-x^2 / 2) / sqrt(2 pi)
 * Rounding  elementwise.  For large negative x the argument's rounding makes P's relative error about x^2 units of
 *           roundoff; |y| itself is about e^(-x^2 / 2).
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

#define ROOT_HALF R(0.70710678118654752440084436210485)
#define NORMAL_TOP R(0.39894228040143267793994605993438)        /* 1 / sqrt(2 pi) */

static inline real FN(below)(real x) { return R(0.5) * REAL_FN(erfc)(-ROOT_HALF * x); }

/* Outside the clamp the derivative is 0 or 1 to within e^(-95) (e^(-700) in fp64).  Inside it x^2 does not overflow,
 * so infinity times 0 does not occur. */
static inline real FN(exact_gelu_slope)(real x)
{
    const real limit = sizeof(real) == 4 ? 14 : 38;
    x = x < -limit ? -limit : x;
    x = x > limit ? limit : x;
    return FN(below)(x) + x * (NORMAL_TOP * FN(fast_exp)(-R(0.5) * x * x));
}

void FN(exact_gelu_forward)(struct tensor Y, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *restrict x = CONST_DATA(X);
    real *restrict y = DATA(Y);
    assert(tensor_count(Y) == count);

    #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = x[i] * FN(below)(x[i]);
}

void FN(exact_gelu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *dy = CONST_DATA(dY), *x = CONST_DATA(X);
    real *dx = DATA(dX);
    assert(tensor_count(dX) == count && tensor_count(dY) == count);

    #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * FN(exact_gelu_slope)(x[i]);
}
