/* add: the residual connection.
 *
 * Source    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", arXiv:1512.03385
 * Shapes    A, B, Y the same, any;  Y may be A or B
 * Forward   Y  = A + B
 * Backward  dA = dY,  dB = dY: nothing to compute, so there is no function for it
 * Rounding  elementwise, once
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

/* simd: Y may be A or B; the pragma tells the compiler that this is safe. */
void FN(add)(struct tensor Y, struct tensor A, struct tensor B)
{
    const int64_t count = tensor_count(Y);
    const real *a = CONST_DATA(A), *b = CONST_DATA(B);
    real *y = DATA(Y);
    assert(tensor_count(A) == count && tensor_count(B) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}
