#include "ref/optim/outer.h"
#include "ref/ops/reduce.h"

void FN(outer_gradient)(struct tensor g, struct tensor anchor, struct tensor theta)
{
    const int64_t n = tensor_count(g);
    real *restrict G = DATA(g);
    const real *restrict A = CONST_DATA(anchor), *restrict W = CONST_DATA(theta);

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) G[i] = A[i] - W[i];
}

void FN(outer_step)(struct tensor theta, struct tensor anchor, struct tensor m, struct tensor sum, int replicas,
                    struct outer o)
{
    const int64_t n = tensor_count(theta);
    real *restrict W = DATA(theta), *restrict A = DATA(anchor), *restrict M = DATA(m);
    const real *restrict G = CONST_DATA(sum);
    const real share = (real)(1.0 / replicas), momentum = (real)o.momentum, lr = (real)o.lr;

    #pragma omp parallel for simd schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        real d = share * G[i];
        if (o.momentum > 0) {
            M[i] = momentum * M[i] + d;
            d += momentum * M[i];
        }
        W[i] = A[i] -= lr * d;
    }
}
