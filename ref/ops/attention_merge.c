/* attention_merge: what joins attention over parts of the keys: two results become the result over both parts.
 *
 * Source    T. Dao et al., "FlashAttention", arXiv:2205.14135, section 3.1; between devices: H. Liu et al., "Ring
 *           attention", arXiv:2310.01889
 * Shapes    O, O2, dO [N,HA], N = B n;  lse, lse2, delta [B,H,n]
 * Merge     l = log(exp(lse) + exp(lse2));  O = exp(lse - l) O + exp(lse2 - l) O2;  lse = l
 * Delta     delta = dO . O for each query and head: what backward over any part needs of the output
 * Rounding  a result that saw no key (lse = -infinity) leaves the other one's bits
 * Called    ref/ops/ops.def lists the operations.  ref/model/streams.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

/* One head's n numbers of a query. */
static void FN(merge_row)(real *restrict o, real *lse, const real *restrict o2, real lse2, int64_t n)
{
    if (lse2 == -(real)INFINITY) return;
    const real top = *lse > lse2 ? *lse : lse2;
    const real e = FN(fast_exp)(*lse - top), e2 = FN(fast_exp)(lse2 - top), inverse = 1 / (e + e2);
    if (*lse == -(real)INFINITY)
        for (int64_t i = 0; i < n; i++) o[i] = o2[i];
    else
        for (int64_t i = 0; i < n; i++) o[i] = (e * o[i] + e2 * o2[i]) * inverse;
    *lse = top + REAL_FN(log)(e + e2);
}

/* Rows of O run over (b, n, h), those of lse over (b, h, n). */
void FN(attention_merge)(struct tensor O, struct tensor lse, struct tensor O2, struct tensor lse2, struct attention a)
{
    const int64_t N = tensor_rows(O), H = a.H, n = tensor_cols(lse);
    assert(tensor_count(O) == N * H * a.A && tensor_count(O2) == tensor_count(O));
    assert(tensor_count(lse) == N * H && tensor_count(lse2) == N * H);

    #pragma omp parallel for if (N * H * a.A > PARALLEL_FROM)
    for (int64_t row = 0; row < N; row++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t o = (row * H + h) * a.A, l = (row / n * H + h) * n + row % n;
            FN(merge_row)(DATA(O) + o, DATA(lse) + l, CONST_DATA(O2) + o, CONST_DATA(lse2)[l], a.A);
        }
}

void FN(attention_delta)(struct tensor delta, struct tensor dO, struct tensor O, struct attention a)
{
    const int64_t N = tensor_rows(O), H = a.H, n = tensor_cols(delta);
    assert(tensor_count(O) == N * H * a.A && tensor_count(dO) == tensor_count(O) && tensor_count(delta) == N * H);

    #pragma omp parallel for if (N * H * a.A > PARALLEL_FROM)
    for (int64_t row = 0; row < N; row++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t o = (row * H + h) * a.A;
            DATA(delta)[(row / n * H + h) * n + row % n] = FN(dot)(CONST_DATA(dO) + o, CONST_DATA(O) + o, a.A);
        }
}
