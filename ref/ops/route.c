/* route: chooses k of E experts for each token, and their weights.
 *
 * Source    N. Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer",
 *           arXiv:1701.06538; A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088: softmax over the chosen
 * Shapes    logits, dlogits [N,E];  experts I32 [N,k];  weights, dweights [N,k]
 * Forward   experts  the k largest logits of the row, largest first; of equal ones the lower index; NaN comes after all
 *                    numbers
 *           weights  p = softmax(logits) of the chosen; normalized: divided by their sum, which is the softmax over the
 *                    chosen alone
 * Backward  dlogits_j = p_j (dweights_j - sum_chosen(p dweights)) for all j of the row; dweights_j = 0 if not chosen.
 *           normalized: p are the weights, and dlogits_j = 0 if not chosen.  The choice itself has no gradient.
 * Rounding  sums of a row from left to right
 */
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"

/* The largest of a row that is not among the first `done` chosen. */
static int32_t FN(next_best)(const real *x, int64_t E, const int32_t *chosen, int64_t done)
{
    int32_t best = -1;
    for (int32_t e = 0; e < E; e++) {
        bool taken = false;
        for (int64_t i = 0; i < done; i++) taken = taken || chosen[i] == e;
        if (!taken && (best < 0 || x[e] > x[best] || (x[best] != x[best] && x[e] == x[e]))) best = e;
    }
    return best;
}

void FN(route_weights)(struct tensor weights, struct tensor experts, struct tensor logits, bool normalized)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(experts.dtype == I32 && tensor_count(experts) == N * k && tensor_count(weights) == N * k && k <= E);

    #pragma omp parallel for schedule(static) if (N * E * k > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(logits) + n * E;
        real *restrict w = DATA(weights) + n * k, total = 0;
        const int32_t *chosen = (const int32_t *)experts.data + n * k;
        const real top = x[chosen[0]];
        for (int64_t i = 0; i < k; i++) {
            w[i] = FN(fast_exp)(x[chosen[i]] - top);
            if (normalized) total += w[i];
        }
        for (int64_t e = 0; e < E && !normalized; e++) total += FN(fast_exp)(x[e] - top);
        for (int64_t i = 0; i < k; i++) w[i] /= total;
    }
}

void FN(route_forward)(struct tensor weights, struct tensor experts, struct tensor logits, bool normalized)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(experts.dtype == I32 && tensor_count(experts) == N * k && k <= E);

    #pragma omp parallel for schedule(static) if (N * E * k > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        int32_t *chosen = (int32_t *)experts.data + n * k;
        for (int64_t i = 0; i < k; i++) chosen[i] = FN(next_best)(CONST_DATA(logits) + n * E, E, chosen, i);
    }
    FN(route_weights)(weights, experts, logits, normalized);
}

void FN(route_backward_input)(struct tensor dlogits, struct tensor dweights, struct tensor weights,
                              struct tensor experts, struct tensor logits, bool normalized)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(weights);
    assert(tensor_count(dlogits) == N * E && tensor_count(dweights) == N * k && tensor_count(experts) == N * k);

    #pragma omp parallel for schedule(static) if (N * E > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(logits) + n * E, *restrict w = CONST_DATA(weights) + n * k,
                   *restrict dw = CONST_DATA(dweights) + n * k;
        const int32_t *chosen = (const int32_t *)experts.data + n * k;
        real *restrict dx = DATA(dlogits) + n * E, inner = 0;
        for (int64_t i = 0; i < k; i++) inner += w[i] * dw[i];
        /* A chosen expert's probability is its weight; the others follow from the differences of the logits. */
        for (int64_t e = 0; e < E; e++) dx[e] = normalized ? 0 : -FN(fast_exp)(x[e] - x[chosen[0]]) * w[0] * inner;
        for (int64_t i = 0; i < k; i++) dx[chosen[i]] = w[i] * (dw[i] - inner);
    }
}
