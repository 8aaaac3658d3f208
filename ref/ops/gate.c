/* gate: multiplies each row by the sigmoid of a number.
 *
 * Source    Qwen1.5-MoE: the gate of the shared experts (class Qwen2MoeSparseMoeBlock of transformers)
 * Shapes    X, Y, dX, dY [N,D];  logits, dlogits [N,1]
 * Forward   y = x s,  s = 1/(1 + e^(-logit))
 * Backward  dx = dy s;  dlogit = (dy . x) s (1-s),  1-s = 1/(1 + e^logit)
 * Rounding  the sum of a row as reduce.h does it; else elementwise
 * Called    ref/ops/ops.def lists the operations.  ref/model/shared.c calls them for one device; devices call each as
 *           dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

static real FN(open_part)(real logit) { return 1 / (1 + FN(fast_exp)(-logit)); }

void FN(gate_forward)(struct tensor Y, struct tensor X, struct tensor logits)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(Y) == N * D && tensor_count(logits) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real s = FN(open_part)(CONST_DATA(logits)[n]), *restrict x = CONST_DATA(X) + n * D;
        real *restrict y = DATA(Y) + n * D;
        for (int64_t d = 0; d < D; d++) y[d] = x[d] * s;
    }
}

void FN(gate_backward_input)(struct tensor dX, struct tensor dlogits, struct tensor dY, struct tensor X,
                             struct tensor logits)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    assert(tensor_count(dX) == N * D && tensor_count(dY) == N * D && tensor_count(dlogits) == N);

    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real l = CONST_DATA(logits)[n], s = FN(open_part)(l), *restrict dy = CONST_DATA(dY) + n * D;
        real *restrict dx = DATA(dX) + n * D;
        DATA(dlogits)[n] = FN(dot)(dy, CONST_DATA(X) + n * D, D) * s * FN(open_part)(-l);
        for (int64_t d = 0; d < D; d++) dx[d] = dy[d] * s;
    }
}
