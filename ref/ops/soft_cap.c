/* soft_cap: keeps numbers between -cap and cap, the small ones nearly as they are.
 *
 * Source    I. Bello et al., "Neural combinatorial optimization with reinforcement learning", arXiv:1611.09940; of
 *           logits and of attention's scores: Gemma Team, "Gemma 2", arXiv:2408.00118
 * Shapes    X, Y, dX, dY the same, any;  Y may be X, dX may be dY
 * Forward   y  = cap tanh(x / cap)
 * Backward  dx = dy (1 - (y / cap)^2): of the result alone
 * Rounding  elementwise
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/soft_cap.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

void FN(soft_cap_forward)(struct tensor Y, struct tensor X, double cap)
{
    const int64_t count = tensor_count(X);
    const real *x = CONST_DATA(X), c = (real)cap;
    real *y = DATA(Y);
    assert(tensor_count(Y) == count && cap > 0);

    #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = FN(capped)(x[i], c);
}

void FN(soft_cap_backward_input)(struct tensor dX, struct tensor dY, struct tensor Y, double cap)
{
    const int64_t count = tensor_count(Y);
    const real *dy = CONST_DATA(dY), *y = CONST_DATA(Y), c = (real)cap;
    real *dx = DATA(dX);
    assert(tensor_count(dX) == count && tensor_count(dY) == count && cap > 0);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * FN(cap_slope)(y[i], c);
}
