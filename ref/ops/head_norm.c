/* head_norm: an rmsnorm of each query head and of each key head; values pass unchanged.
 *
 * Source    M. Dehghani et al., "Scaling vision transformers to 22 billion parameters", arXiv:2302.05442, section 2, as
 *           Qwen3 has it (A. Yang et al., arXiv:2505.09388): before rotary positions, without a mean and a bias
 * Shapes    X, Y, dX, dY [N, (H+2K)A];  w, dw [2A]: the queries' A weights, then the keys';  rstd [N(H+K)]
 * Forward   of each head x:  rstd = 1/sqrt(mean(x^2) + eps),  y = x * rstd * (base + w)
 * Backward  g = dy * (base + w),  xhat = x * rstd;  dx = rstd * (g - xhat * mean(g * xhat));
 *           dw += sum(dy * xhat) over rows and heads
 * Rounding  as rmsnorm; weight gradients sum the heads of a row, rows in order.
 */
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

/* The weights of head h. */
static const real *FN(weights_of)(struct tensor w, struct attention a, int64_t h)
{
    return CONST_DATA(w) + (h < a.H ? 0 : a.A);
}

static void FN(copy_values)(real *to, const real *from, struct attention a)
{
    for (int64_t i = (a.H + a.K) * a.A; i < (a.H + 2 * a.K) * a.A; i++) to[i] = from[i];
}

void FN(head_norm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                           struct attention a, double eps)
{
    const real from = (real)base;
    const int64_t N = tensor_rows(X), ld = tensor_cols(X), heads = a.H + a.K;
    assert(ld == (a.H + 2 * a.K) * a.A && tensor_count(Y) == N * ld && tensor_count(w) == 2 * a.A);
    assert(tensor_count(rstd) == N * heads);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < heads; h++) {
            const real *x = CONST_DATA(X) + n * ld + h * a.A, *W = FN(weights_of)(w, a, h);
            real *y = DATA(Y) + n * ld + h * a.A;
            const real r = 1 / REAL_FN(sqrt)(FN(sum_centred_squares)(x, 0, a.A) / (real)a.A + (real)eps);
            for (int64_t i = 0; i < a.A; i++) y[i] = x[i] * r * (from + W[i]);
            DATA(rstd)[n * heads + h] = r;
        }
        FN(copy_values)(DATA(Y) + n * ld, CONST_DATA(X) + n * ld, a);
    }
}

void FN(head_norm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w, double base,
                                  struct tensor rstd, struct attention a)
{
    const real from = (real)base;
    const int64_t N = tensor_rows(X), ld = tensor_cols(X), heads = a.H + a.K;
    assert(tensor_count(dX) == N * ld && tensor_count(dY) == N * ld && tensor_count(w) == 2 * a.A);
    assert(tensor_count(rstd) == N * heads);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < heads; h++) {
            const real *x = CONST_DATA(X) + n * ld + h * a.A, *dy = CONST_DATA(dY) + n * ld + h * a.A,
                       *W = FN(weights_of)(w, a, h), r = CONST_DATA(rstd)[n * heads + h];
            real *dx = DATA(dX) + n * ld + h * a.A, sum = 0;
            for (int64_t i = 0; i < a.A; i++) sum += dy[i] * (from + W[i]) * (x[i] * r);
            const real mean = sum / (real)a.A;
            for (int64_t i = 0; i < a.A; i++) dx[i] = r * (dy[i] * (from + W[i]) - x[i] * r * mean);
        }
        FN(copy_values)(DATA(dX) + n * ld, CONST_DATA(dY) + n * ld, a);
    }
}

/* Threads split the columns, so that every column's sum runs over the rows in order. */
void FN(head_norm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd,
                                   struct attention a)
{
    const int64_t N = tensor_rows(X), ld = tensor_cols(X), heads = a.H + a.K;
    assert(tensor_count(dw) == 2 * a.A && tensor_count(dY) == N * ld && tensor_count(rstd) == N * heads);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t i = 0; i < 2 * a.A; i++) {
        const int64_t first = i < a.A ? 0 : a.H, end = i < a.A ? a.H : heads;
        real sum = 0;
        for (int64_t n = 0; n < N; n++)
            for (int64_t h = first; h < end; h++) {
                const int64_t at = n * ld + h * a.A + i % a.A;
                sum += CONST_DATA(dY)[at] * (CONST_DATA(X)[at] * CONST_DATA(rstd)[n * heads + h]);
            }
        DATA(dw)[i] += sum;
    }
}
