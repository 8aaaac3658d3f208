/* attention_sinks: the gradient of what a head's queries see beside their keys, a learned logit without a value.
 *
 * Source    OpenAI, "gpt-oss-120b & gpt-oss-20b model card", arXiv:2508.10925, section 2; class GptOssAttention of
 *           transformers; G. Xiao et al., "Efficient streaming language models with attention sinks", arXiv:2309.17453
 * Shapes    dO, O [N,HA], N = B n;  lse [BH,n], with the sink;  sinks, dsinks [H]
 * Backward  dsink += -sum_queries(p D),  p = exp(sink - lse),  D = dO . O: the sink's own product with dO is 0
 * Rounding  each head's rows in order
 * Called    ref/ops/ops.def lists the operation.  ref/model/backward.c calls it for one device; devices call it as
 *           dev_attention_sinks_backward (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/exp.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"

#ifndef SUMS_EXACTLY            /* ref/exact/tokens.c has the sum that does not round */
void FN(attention_sinks_backward)(struct tensor dsinks, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct attention a)
{
    const int64_t N = tensor_rows(O), H = a.H, n = tensor_cols(lse);
    assert(tensor_count(dsinks) == H && tensor_count(a.sinks) == H && tensor_count(lse) == N * H);
    assert(tensor_count(O) == N * H * a.A && tensor_count(dO) == tensor_count(O));

    #pragma omp parallel for schedule(static) if (N * H * a.A > PARALLEL_FROM)
    for (int64_t h = 0; h < H; h++) {
        const real sink = CONST_DATA(a.sinks)[h];
        real sum = 0;
        for (int64_t row = 0; row < N; row++) {
            const int64_t o = (row * H + h) * a.A, l = (row / n * H + h) * n + row % n;
            sum += FN(fast_exp)(sink - CONST_DATA(lse)[l]) * FN(dot)(CONST_DATA(dO) + o, CONST_DATA(O) + o, a.A);
        }
        DATA(dsinks)[h] -= sum;
    }
}
#endif
