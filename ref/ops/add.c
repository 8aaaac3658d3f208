/* add: the residual connection.
 *
 * Source    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", arXiv:1512.03385
 * Shapes    X, Z, Y the same, any;  Y may be X or Z
 * Forward   Y  = X + Z
 * Backward  dX = dY,  dZ = dY: nothing to compute, so there is no function for it
 * Rounding  elementwise, once
 * Called    ref/ops/ops.def lists the operation.  Files of ref/model/ call it for one device; devices call it as
 *           dev_add (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

#ifndef SUMS_EXACTLY
/* simd: Y may be X or Z; the pragma tells the compiler that this is safe. */
void FN(add)(struct tensor Y, struct tensor X, struct tensor Z)
{
    const int64_t count = tensor_count(Y);
    const real *x = CONST_DATA(X), *z = CONST_DATA(Z);
    real *y = DATA(Y);
    assert(tensor_count(X) == count && tensor_count(Z) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = x[i] + z[i];
}
#endif
