/* attention: each token gets a weighted mean of the values of the tokens that it sees: up to itself, or by a mask.
 *
 * Source    A. Vaswani et al., "Attention is all you need", arXiv:1706.03762; grouped queries: J. Ainslie et al.,
 *           arXiv:2305.13245; in tiles, with a running softmax: T. Dao et al., "FlashAttention", arXiv:2205.14135,
 *           algorithms 1 and 4
 * Shapes    QKV, dQKV [N, (H+2K)A], N = B S;  O, dO [N, HA];  lse [B,H,S]
 * Forward   s = scale q k^T, capped (soft_cap.c), for keys that the query sees: at or before it, or those of the mask
 *           p = exp(s - lse),  lse = log(sum_keys exp(s))
 *           o = sum_keys(m p v),  m = 1/(1-p_drop) or 0 by dropout's rule (1 without dropout)
 * Sinks     lse = log(sum_keys exp(s) + exp(sink)): the sink is one more key, of value 0, with a logit of its own
 * Backward  dv = sum_queries(m p do)
 *           ds = p (m do v^T - D) times the slope of the cap,  D = do . o
 *           ds = 0 where a query sees one key and nothing more: its p is 1 whatever s is (m do v^T - D is rounding)
 *           dq = scale sum_keys(ds k),  dk = scale sum_queries(ds q)
 *           p is computed again from lse; dk and dv of a group sum over all its query heads
 *           dsink = -sum_queries(exp(sink - lse) D), by attention_sinks.c
 * Parts     attention over some tokens with some keys: (o, lse) of these alone, for attention_merge; backward from the
 *           merged lse and D adds what these keys and queries contribute
 * Memory    two TILE x TILE tiles on each thread's stack; no row of scores is stored
 * Rounding  keys in order, tile by tile; dk, dv: query heads in order, then queries in order.  One thread computes each
 *           tile as one product, so the bits depend neither on the number of threads nor on the heads of a call.
 * Called    ref/ops/ops.def lists the operations.  Files of ref/model/ call them for one device; devices call each as
 *           dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/attention_parts.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"
#include <string.h>

/* Dynamic scheduling: blocks late in a sequence have more keys than early ones. */
static void FN(forward)(struct tensor O, struct tensor lse, const struct part *p)
{
    const struct attention *a = &p->a;
    const int64_t blocks = (p->queries + TILE - 1) / TILE;
    assert(tensor_count(O) == p->B * p->queries * a->H * a->A && tensor_count(lse) == p->B * a->H * p->queries);

    #pragma omp parallel for collapse(3) schedule(dynamic) if (FN(attention_parts_many)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t block = 0; block < blocks; block++) {
                const struct head t = FN(attention_parts_head)(p, b, h);
                FN(attention_rows_forward)(DATA(O) + (b * p->queries * a->H + h) * a->A, a->H * a->A,
                                           DATA(lse) + (b * a->H + h) * p->queries, &t, a, block * TILE);
            }
}

void FN(attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a)
{
    const struct part p = FN(attention_parts_whole)(QKV, a);
    FN(forward)(O, lse, &p);
}

void FN(attention_part_forward)(struct tensor O, struct tensor lse, struct tensor Q, struct tensor KV,
                                struct tensor q_at, struct tensor k_at, struct attention a)
{
    const struct part p = FN(attention_parts_of)(Q, KV, q_at, k_at, a);
    FN(forward)(O, lse, &p);
}

/* ---- sums over some keys, given the largest score of each query over all of its keys ----------------------------- */

void FN(attention_part_top)(struct tensor top, struct tensor Q, struct tensor K, int64_t first, struct tensor q_at,
                            struct tensor k_at, struct attention a, bool more)
{
    const struct part p = FN(attention_parts_with_keys)(Q, K, first, q_at, k_at, a);
    FN(attention_parts_top)(top, &p, more);
}

void FN(attention_part_sums)(struct tensor O, struct tensor total, struct tensor top, struct tensor Q,
                             struct tensor KV, struct tensor q_at, struct tensor k_at, struct attention a)
{
    const struct part p = FN(attention_parts_of)(Q, KV, q_at, k_at, a);
    const int64_t blocks = (p.queries + TILE - 1) / TILE;

    #pragma omp parallel for collapse(3) schedule(dynamic) if (FN(attention_parts_many)(p.B, &a, p.queries, p.keys))
    for (int64_t b = 0; b < p.B; b++)
        for (int64_t h = 0; h < a.H; h++)
            for (int64_t block = 0; block < blocks; block++) {
                const struct head t = FN(attention_parts_head)(&p, b, h);
                const int64_t row = (b * a.H + h) * p.queries;
                FN(attention_rows_sum)(DATA(O) + (b * p.queries * a.H + h) * a.A, a.H * a.A, DATA(total) + row,
                                       CONST_DATA(top) + row, &t, &a, block * TILE);
            }
}

void FN(attention_part_finish)(struct tensor Y, struct tensor lse, struct tensor O, struct tensor total,
                               struct tensor top, struct attention a)
{
    const int64_t N = tensor_rows(O), n = tensor_cols(top);

    #pragma omp parallel for if (N * a.H * a.A > PARALLEL_FROM)
    for (int64_t row = 0; row < N; row++)
        for (int64_t h = 0; h < a.H; h++) {
            const int64_t at = (row * a.H + h) * a.A, l = (row / n * a.H + h) * n + row % n;
            const real sum = CONST_DATA(total)[l], factor = sum > 0 ? 1 / sum : sum == sum ? 0 : sum;
            /* Y = O / total,  lse = top + log(total) */
            for (int64_t i = 0; i < a.A; i++) DATA(Y)[at + i] = CONST_DATA(O)[at + i] * factor;
            DATA(lse)[l] = CONST_DATA(top)[l] + REAL_FN(log)(sum);
        }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static struct FN(head_gradients) FN(gradients_at)(struct tensor dQ, struct tensor dKV, const struct part *p, int64_t b,
                                                  int64_t h)
{
    const struct attention *a = &p->a;
    const int64_t ld_q = tensor_cols(dQ), ld_kv = tensor_cols(dKV);
    real *dk = DATA(dKV) + b * p->keys * ld_kv + ld_kv - 2 * a->K * a->A + h / (a->H / a->K) * a->A;
    return (struct FN(head_gradients)){ .dq = DATA(dQ) + b * p->queries * ld_q + h * a->A, .dk = dk,
                                        .dv = dk + a->K * a->A, .ld_dq = ld_q, .ld_dkv = ld_kv };
}

/* One thread computes a key/value head of a sequence, so that its sums run in order. */
static void FN(backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor O, struct tensor delta,
                         struct tensor lse, const struct part *p)
{
    const struct attention *a = &p->a;
    const int64_t group = a->K > 0 ? a->H / a->K : 0, ld_o = a->H * a->A;
    assert(tensor_count(lse) == p->B * a->H * p->queries && tensor_count(dO) == p->B * p->queries * ld_o);

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(attention_parts_many)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t kv = 0; kv < a->K; kv++)
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                const struct head t = FN(attention_parts_head)(p, b, h);
                for (int64_t q0 = 0; q0 < p->queries; q0 += TILE) {
                    real D[TILE];
                    FN(attention_parts_delta)(D, delta, dO, O, p, b, h, q0);
                    FN(attention_rows_backward)(FN(gradients_at)(dQ, dKV, p, b, h),
                                                CONST_DATA(dO) + b * p->queries * ld_o + h * a->A, ld_o,
                                                CONST_DATA(lse) + (b * a->H + h) * p->queries, D, &t, a, q0);
                }
            }
}

void FN(attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct tensor QKV, struct attention a)
{
    const struct part p = FN(attention_parts_whole)(QKV, a);
    assert(tensor_count(dQKV) == tensor_count(QKV) && tensor_count(O) == tensor_count(dO));
    if (tensor_count(dQKV) > 0) memset(dQKV.data, 0, tensor_bytes(dQKV));
    FN(backward)(dQKV, dQKV, dO, O, tensor_none, lse, &p);
}

void FN(attention_part_backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor delta,
                                 struct tensor lse, struct tensor Q, struct tensor KV, struct tensor q_at,
                                 struct tensor k_at, struct attention a)
{
    const struct part p = FN(attention_parts_of)(Q, KV, q_at, k_at, a);
    FN(backward)(dQ, dKV, dO, tensor_none, delta, lse, &p);
}
