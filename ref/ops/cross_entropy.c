/* cross_entropy: minus the log of each label's softmax probability, in pieces: slices of the vocabulary are combined
 * between the pieces.
 *
 * Source    J. S. Bridle, "Probabilistic interpretation of feedforward classification network outputs", 1990,
 *           doi:10.1007/978-3-642-76153-9_28; over slices: M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053,
 *           section 3
 * Shapes    logits, dlogits [N,V'], columns first .. first+V'-1 of the whole;  labels I32 [N];  top, total, hit [N]
 * Forward   top   = max_row(logits)                                   combine slices: maximum
 *           total = sum_row(exp(logits - top))                        combine slices: sum
 *           hit   = logits[n, labels[n]] if in the slice, else 0      combine slices: sum
 *           loss  = sum_n(log(total) + top - hit), over the labels that are not `ignore`
 * Backward  dlogits = scale * (exp(logits - top)/total - [column is the label]), 0 in ignored rows
 * Rounding  total in LANES interleaved partial sums in the format; the loss in double, rows in order.  exp does not
 *           overflow: its argument is <= 0.  A row whose logits are all -infinity has no softmax: its loss is NaN.
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

void FN(cross_entropy_max)(struct tensor top, struct tensor logits)
{
    const int64_t N = tensor_count(top), V = tensor_cols(logits);
    assert(tensor_rows(logits) == N);

    #pragma omp parallel for schedule(static) if (N * V > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) DATA(top)[n] = FN(max)(CONST_DATA(logits) + n * V, V);
}

#ifndef SUMS_EXACTLY
static real FN(sum_exp)(const real *restrict x, real top, int64_t n)
{
    real lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += FN(fast_exp)(x[i + l] - top);
    for (int l = 0; i < n; i++, l++) lane[l] += FN(fast_exp)(x[i] - top);
    return FN(fold)(lane);
}

void FN(cross_entropy_sums)(struct tensor total, struct tensor hit, struct tensor logits, struct tensor top,
                            struct tensor labels, int64_t first)
{
    const int64_t N = tensor_count(top), V = tensor_cols(logits);
    assert(tensor_rows(logits) == N && tensor_count(total) == N && tensor_count(hit) == N);
    assert(labels.dtype == I32 && tensor_count(labels) == N);

    #pragma omp parallel for schedule(static) if (N * V > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *x = CONST_DATA(logits) + n * V;
        const int64_t column = ((const int32_t *)labels.data)[n] - first;
        DATA(total)[n] = FN(sum_exp)(x, CONST_DATA(top)[n], V);
        DATA(hit)[n] = column >= 0 && column < V ? x[column] : 0;
    }
}

void FN(cross_entropy_loss)(double *loss, struct tensor total, struct tensor top, struct tensor hit,
                            struct tensor labels, int ignore)
{
    const int64_t N = tensor_count(labels);
    const int32_t *label = labels.data;
    double sum = 0;
    assert(labels.dtype == I32 && tensor_count(total) == N && tensor_count(top) == N && tensor_count(hit) == N);

    for (int64_t n = 0; n < N; n++)
        if (label[n] != ignore)
            sum += log((double)CONST_DATA(total)[n]) + (double)CONST_DATA(top)[n] - (double)CONST_DATA(hit)[n];
    *loss = sum;
}

/* simd: dlogits may be logits; the pragma tells the compiler that this is safe. */
static void FN(softmax_slope)(real *dx, const real *x, real top, real total, real scale, int64_t V)
{
    const real factor = scale / total;
    #pragma omp simd
    for (int64_t v = 0; v < V; v++) dx[v] = FN(fast_exp)(x[v] - top) * factor;
}

void FN(cross_entropy_backward)(struct tensor dlogits, struct tensor logits, struct tensor total, struct tensor top,
                                struct tensor labels, int64_t first, int ignore, double scale)
{
    const int64_t N = tensor_count(labels), V = tensor_cols(logits);
    assert(tensor_count(dlogits) == N * V && tensor_rows(logits) == N && tensor_count(total) == N);
    assert(labels.dtype == I32 && tensor_count(top) == N);

    #pragma omp parallel for schedule(static) if (N * V > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const int32_t label = ((const int32_t *)labels.data)[n];
        const int64_t column = label - first;
        real *dx = DATA(dlogits) + n * V;
        if (label == ignore) {
            for (int64_t v = 0; v < V; v++) dx[v] = 0;
            continue;
        }
        FN(softmax_slope)(dx, CONST_DATA(logits) + n * V, CONST_DATA(top)[n], CONST_DATA(total)[n], (real)scale, V);
        if (column >= 0 && column < V) dx[column] -= (real)scale;
    }
}
#endif
