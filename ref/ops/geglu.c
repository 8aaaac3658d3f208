/* geglu: multiplies one half of each row by gelu of the other half.
 *
 * Source    N. Shazeer, "GLU variants improve transformer", arXiv:2002.05202
 * Shapes    X, dX [N,2F]: the gate g, then the gated half u;  Y, dY [N,F]
 * Forward   y  = gelu(g) u, the tanh form of gelu.c
 * Backward  dg = dy u gelu'(g);   du = dy gelu(g)
 * Rounding  elementwise
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/gelu.h"
#include "ref/ops/reduce.h"

void FN(geglu_forward)(struct tensor Y, struct tensor X)
{
    const int64_t N = tensor_rows(Y), F = tensor_cols(Y);
    assert(tensor_rows(X) == N && tensor_cols(X) == 2 * F);

    #pragma omp parallel for schedule(static) if (N * F > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict g = CONST_DATA(X) + n * 2 * F, *restrict u = g + F;
        real *restrict y = DATA(Y) + n * F;
        for (int64_t f = 0; f < F; f++) y[f] = FN(gelu)(g[f]) * u[f];
    }
}

void FN(geglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X)
{
    const int64_t N = tensor_rows(dY), F = tensor_cols(dY);
    assert(tensor_rows(X) == N && tensor_cols(X) == 2 * F && tensor_count(dX) == tensor_count(X));

    #pragma omp parallel for schedule(static) if (N * F > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict g = CONST_DATA(X) + n * 2 * F, *restrict u = g + F, *restrict dy = CONST_DATA(dY) + n * F;
        real *restrict dg = DATA(dX) + n * 2 * F, *restrict du = dg + F;
        for (int64_t f = 0; f < F; f++) {
            dg[f] = dy[f] * u[f] * FN(gelu_slope)(g[f]);
            du[f] = dy[f] * FN(gelu)(g[f]);
        }
    }
}
