/* squared relu: the square of what is above 0.
 *
 * Source    D. R. So et al., "Primer: searching for efficient transformers for language modeling", arXiv:2109.08668
 * Shapes    X, Y, dX, dY the same, any;  dX may be dY
 * Forward   r = max(x, 0);  y = r^2;  a NaN stays a NaN
 * Backward  dx = dy 2 r
 * Rounding  elementwise; one product each way, as doubling is exact
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

static inline real FN(above)(real x) { return x < 0 ? 0 : x; }

void FN(squared_relu_forward)(struct tensor Y, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *restrict x = CONST_DATA(X);
    real *restrict y = DATA(Y);
    assert(tensor_count(Y) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = FN(above)(x[i]) * FN(above)(x[i]);
}

/* simd: dX may be dY; the pragma tells the compiler that this is safe. */
void FN(squared_relu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X)
{
    const int64_t count = tensor_count(X);
    const real *dy = CONST_DATA(dY), *x = CONST_DATA(X);
    real *dx = DATA(dX);
    assert(tensor_count(dX) == count && tensor_count(dY) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * (2 * FN(above)(x[i]));
}
