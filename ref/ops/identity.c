/* identity: experts of a mixture that return the token they get.
 *
 * Source    Meituan, "LongCat-Flash", arXiv:2509.01322, section 2.1: zero-computation experts
 * Shapes    X, Y, dY [N,D];  experts I32 [N,k];  weights, dweights [N,k];  columns E and above of the router are such
 *           experts
 * Forward   Y[n,:] += (sum over the choices i of row n with experts[n,i] >= E of weights[n,i]) X[n,:]
 * Backward  dX = the same of dY, so forward computes it;  dweights[n,i] = X[n,:] . dY[n,:] of these choices
 * Rounding  a row's weights are added first, in order
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(identity_forward)(struct tensor Y, struct tensor X, struct tensor experts, struct tensor weights, int64_t E)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), k = tensor_cols(weights);
    assert(tensor_count(Y) == N * D && tensor_count(experts) == N * k && tensor_count(weights) == N * k);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const int32_t *chosen = (const int32_t *)experts.data + n * k;
        const real *restrict x = CONST_DATA(X) + n * D, *restrict w = CONST_DATA(weights) + n * k;
        real *restrict y = DATA(Y) + n * D, sum = 0;
        bool any = false;
        for (int64_t i = 0; i < k; i++)
            if (chosen[i] >= E) sum += w[i], any = true;
        for (int64_t d = 0; d < D && any; d++) y[d] += sum * x[d];
    }
}

void FN(identity_backward_weights)(struct tensor dweights, struct tensor dY, struct tensor X, struct tensor experts,
                                   int64_t E)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), k = tensor_cols(dweights);
    assert(tensor_count(dY) == N * D && tensor_count(experts) == N * k);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t i = 0; i < N * k; i++)
        if (((const int32_t *)experts.data)[i] >= E)
            DATA(dweights)[i] = FN(dot)(CONST_DATA(X) + i / k * D, CONST_DATA(dY) + i / k * D, D);
}
