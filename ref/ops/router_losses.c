/* router_losses: auxiliary losses of a mixture; they make its router use all experts and keep its logits small.
 *
 * Source    balance: W. Fedus, B. Zoph, N. Shazeer, "Switch transformers", arXiv:2101.03961, equations 4 to 6, with the
 *           k choices of a token counted each; z: B. Zoph et al., "ST-MoE", arXiv:2202.08906, equation 5
 * Shapes    logits, dlogits [N,E];  experts I32 [N,k];  sums double [2E+1];  slope double [E]
 * Losses    over T rows, which are the rows of all layers together:
 *           balance = E sum_e f_e P_e,  f_e = choices of e / T,  P_e = mean over rows of p_e,  p = softmax(row)
 *           z       = mean over rows of (log sum exp row)^2
 * Forward   adds to sums: for each e the sum of p_e; then for each e the choices of e among the first `counted` of a
 *           row's k; then the sum of (log sum exp)^2
 * Backward  dlogits_j += p_j (slope_j - sum_e(slope_e p_e)) + z_slope lse p_j;  the caller passes
 *           slope_e = c E f_e / T and z_slope = 2 c_z / T.  Choices have no gradient.
 * Rounding  rows in order; probabilities in the format, sums over rows in double
 * Called    ref/ops/ops.def lists the operations.  ref/model/mixture.c calls them for one device; devices call each
 *           as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/exp.h"
#include "ref/ops/reduce.h"
#ifdef SUMS_EXACTLY
#include "ref/exact/grid.h"
#endif

/* A row adds this to a sum over rows.  With exact sums it is a multiple of 2^-26: then sums over rows are exact in
 * fp64, in any order, up to 2^27 in all. */
#ifdef SUMS_EXACTLY
static double FN(of_row)(double x) { return grid_round(x * 0x1p26) * 0x1p-26; }
#else
static double FN(of_row)(double x) { return x; }
#endif

static real FN(row_total)(const real *x, int64_t E, real top)
{
    real total = 0;
    for (int64_t e = 0; e < E; e++) total += FN(fast_exp)(x[e] - top);
    return total;
}

void FN(router_losses_forward)(double *sums, struct tensor logits, struct tensor experts, int64_t counted)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits), k = N > 0 ? tensor_count(experts) / N : 1;
    const int32_t *expert = experts.data;
    for (int64_t n = 0; n < N; n++) {
        const real *x = CONST_DATA(logits) + n * E, top = FN(max)(x, E), total = FN(row_total)(x, E, top);
        const real lse = top + REAL_FN(log)(total);
        for (int64_t e = 0; e < E; e++) sums[e] += FN(of_row)(FN(fast_exp)(x[e] - top) / total);
        sums[2 * E] += FN(of_row)((double)lse * (double)lse);
    }
    for (int64_t i = 0; i < N * k; i++)
        if (expert[i] != CHOICE_NONE && i % k < counted) sums[E + choice_made(expert[i])] += 1;
}

void FN(router_losses_backward_input)(struct tensor dlogits, struct tensor logits, const double *slope, double z_slope)
{
    const int64_t N = tensor_rows(logits), E = tensor_cols(logits);
    assert(tensor_count(dlogits) == N * E);

    #pragma omp parallel for schedule(static) if (N * E > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *restrict x = CONST_DATA(logits) + n * E;
        real *restrict dx = DATA(dlogits) + n * E, inner = 0;
        const real top = FN(max)(x, E), total = FN(row_total)(x, E, top),
                   pull = (real)z_slope * (top + REAL_FN(log)(total));
        for (int64_t e = 0; e < E; e++) inner += (real)slope[e] * (FN(fast_exp)(x[e] - top) / total);
        for (int64_t e = 0; e < E; e++) dx[e] += FN(fast_exp)(x[e] - top) / total * ((real)slope[e] - inner + pull);
    }
}
