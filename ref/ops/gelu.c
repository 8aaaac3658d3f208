/* gelu: x times the probability that a normal number is below x, in the tanh form that GPT-2 uses.
 *
 * Source    D. Hendrycks, K. Gimpel, "Gaussian error linear units", arXiv:1606.08415
 * Shapes    X, Y, dX, dY the same, any;  dX may be dY
 * Forward   u = sqrt(2/pi) (x + 0.044715 x^3)
 *           y = x/2 (1 + tanh u) = x s,  s = 1/(1 + e^(-2u)): without cancellation where tanh u is near -1
 * Backward  dx = dy (s + x s(1-s) 2u'),  2u' = sqrt(8/pi) (1 + 3 * 0.044715 x^2),  1-s = s e^(-2u)
 * Rounding  elementwise.  For large negative x, y has the relative error of e^(2u), about 2|u| units of roundoff; |y|
 *           itself is about |x| e^(2u).
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c, ref/model/encoder.c and ref/model/forward.c
 *           call them for one device; devices call each as dev_NAME (device/compute.h).  No function returns an error
 *           code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/gelu.h"
#include "ref/ops/reduce.h"

void FN(gelu_forward)(struct tensor Y, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *restrict x = CONST_DATA(X);
    real *restrict y = DATA(Y);
    assert(tensor_count(Y) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = FN(gelu)(x[i]);
}

/* simd: dX may be dY; the pragma tells the compiler that this is safe. */
void FN(gelu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *dy = CONST_DATA(dY), *x = CONST_DATA(X);
    real *dx = DATA(dX);
    assert(tensor_count(dX) == count && tensor_count(dY) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * FN(gelu_slope)(x[i]);
}
