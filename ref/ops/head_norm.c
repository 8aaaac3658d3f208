/* head_norm: an rmsnorm of each query head and of each key head, or of all queries and of all keys; values pass
 * unchanged.
 *
 * Source    M. Dehghani et al., "Scaling vision transformers to 22 billion parameters", arXiv:2302.05442, section 2, as
 *           Qwen3 has it (A. Yang et al., arXiv:2505.09388): before rotary positions, without a mean and a bias; of all
 *           heads together: OLMo 2 (arXiv:2501.00656)
 * Shapes    X, Y, dX, dY [N, (H+2K)A];  w, dw [2A]: the queries' A weights, then the keys';  rstd [N(H+K)].  Together:
 *           w, dw [(H+K)A];  rstd [2N]
 * Forward   of each head x:  rstd = 1/sqrt(mean(x^2) + eps),  y = x * rstd * (base + w)
 * Backward  g = dy * (base + w),  xhat = x * rstd;  dx = rstd * (g - xhat * mean(g * xhat));
 *           dw += sum(dy * xhat) over rows and heads
 * Rounding  as rmsnorm; weight gradients sum the heads of a row, rows in order.
 * Called    ref/ops/ops.def lists the operations.  ref/model/backward.c and ref/model/forward.c call them for one
 *           device; devices call each as dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

/* Piece h of a row: where it is in the row, where its weights are, and its width. */
struct piece { int64_t at, weights, width; };

static struct piece piece_of(const struct normed_heads *heads, int64_t h)
{
    const bool key = h >= heads->first;
    return (struct piece){ key ? heads->first * heads->queries + (h - heads->first) * heads->keys : h * heads->queries,
                           key ? heads->queries : 0, key ? heads->keys : heads->queries };
}

static void FN(copy_values)(real *to, const real *from, struct attention a)
{
    for (int64_t i = (a.H + a.K) * a.A; i < (a.H + 2 * a.K) * a.A; i++) to[i] = from[i];
}

void FN(head_norm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                           struct attention a, double eps)
{
    const real from = (real)base;
    const struct normed_heads p = normed_heads(a);
    const int64_t N = tensor_rows(X), ld = tensor_cols(X);
    assert(ld == (a.H + 2 * a.K) * a.A && tensor_count(Y) == N * ld && tensor_count(w) == p.queries + p.keys);
    assert(tensor_count(rstd) == N * p.count);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < p.count; h++) {
            const struct piece q = piece_of(&p, h);
            const real *x = CONST_DATA(X) + n * ld + q.at, *W = CONST_DATA(w) + q.weights;
            real *y = DATA(Y) + n * ld + q.at;
            const real r = 1 / REAL_FN(sqrt)(FN(row_mean_square)(x, 0, q.width) + (real)eps);
            for (int64_t i = 0; i < q.width; i++) y[i] = x[i] * r * (from + W[i]);
            DATA(rstd)[n * p.count + h] = r;
        }
        FN(copy_values)(DATA(Y) + n * ld, CONST_DATA(X) + n * ld, a);
    }
}

void FN(head_norm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w, double base,
                                  struct tensor rstd, struct attention a)
{
    const real from = (real)base;
    const struct normed_heads p = normed_heads(a);
    const int64_t N = tensor_rows(X), ld = tensor_cols(X);
    assert(tensor_count(dX) == N * ld && tensor_count(dY) == N * ld && tensor_count(w) == p.queries + p.keys);
    assert(tensor_count(rstd) == N * p.count);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < p.count; h++) {
            const struct piece q = piece_of(&p, h);
            const real *x = CONST_DATA(X) + n * ld + q.at, *dy = CONST_DATA(dY) + n * ld + q.at,
                       *W = CONST_DATA(w) + q.weights, r = CONST_DATA(rstd)[n * p.count + h];
            real *dx = DATA(dX) + n * ld + q.at;
#ifdef SUMS_EXACTLY
            real mean, unused;
            FN(row_mean_slopes)(dy, W, from, x, 0, r, q.width, &unused, &mean);
#else
            real sum = 0;
            for (int64_t i = 0; i < q.width; i++) sum += dy[i] * (from + W[i]) * (x[i] * r);
            const real mean = sum / (real)q.width;
#endif
            for (int64_t i = 0; i < q.width; i++) dx[i] = r * (dy[i] * (from + W[i]) - x[i] * r * mean);
        }
        FN(copy_values)(DATA(dX) + n * ld, CONST_DATA(dY) + n * ld, a);
    }
}

#ifndef SUMS_EXACTLY
/* Threads split the columns, so that every column's sum runs over the rows in order. */
void FN(head_norm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd,
                                   struct attention a)
{
    const struct normed_heads p = normed_heads(a);
    const int64_t N = tensor_rows(X), ld = tensor_cols(X);
    assert(tensor_count(dw) == p.queries + p.keys && tensor_count(dY) == N * ld && tensor_count(rstd) == N * p.count);

    #pragma omp parallel for schedule(static) if (N * ld > PARALLEL_FROM)
    for (int64_t i = 0; i < p.queries + p.keys; i++) {
        const int64_t first = i < p.queries ? 0 : p.first, end = i < p.queries ? p.first : p.count;
        real sum = 0;
        for (int64_t n = 0; n < N; n++)
            for (int64_t h = first; h < end; h++) {
                const struct piece q = piece_of(&p, h);
                const int64_t at = n * ld + q.at + i - q.weights;
                sum += CONST_DATA(dY)[at] * (CONST_DATA(X)[at] * CONST_DATA(rstd)[n * p.count + h]);
            }
        DATA(dw)[i] += sum;
    }
}
#endif
