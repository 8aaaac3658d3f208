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
 *           tile as one product, so the bits depend neither on the number of threads nor on the heads of a call.  With
 *           the sums of ref/exact/ each query head's dk, dv are added exactly (key_sums.h); dKV may be EXACT
 * Called    ref/ops/ops.def lists the operations.  Files of ref/model/ call them for one device; devices call each as
 *           dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/attention_rows.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"
#include <string.h>
#ifdef SUMS_EXACTLY
#include "ref/exact/key_sums.h"
#endif

/* Queries of some tokens, keys and values of some: all of a sequence's, or a part of each. */
struct part { struct tensor Q, KV, q_at, k_at; struct attention a; int64_t queries, keys, B; };

static struct part FN(part_of)(struct tensor Q, struct tensor KV, struct tensor q_at, struct tensor k_at,
                               struct attention a)
{
    struct part p = { Q, KV, q_at, k_at, a, tensor_present(q_at) ? tensor_count(q_at) : a.S,
                      tensor_present(k_at) ? tensor_count(k_at) : a.S, 0 };
    p.B = p.queries > 0 ? tensor_rows(Q) / p.queries : p.keys > 0 ? tensor_rows(KV) / p.keys : 0;
    assert(a.S >= 0 && a.H >= 0 && a.K >= 0 && a.A >= 0 && (a.K == 0 ? a.H == 0 : a.H % a.K == 0));
    assert(tensor_cols(Q) >= a.H * a.A && tensor_cols(KV) >= 2 * a.K * a.A);
    assert(tensor_rows(Q) == p.B * p.queries && tensor_rows(KV) == p.B * p.keys);
    return p;
}

static struct part FN(whole)(struct tensor QKV, struct attention a)
{
    assert(tensor_cols(QKV) == (a.H + 2 * a.K) * a.A);
    return FN(part_of)(QKV, QKV, tensor_none, tensor_none, a);
}

/* Queries are the first columns of their tensor, keys and values the last of theirs. */
static struct head FN(head_at)(const struct part *p, int64_t b, int64_t h)
{
    const struct attention *a = &p->a;
    const int64_t ld_q = tensor_cols(p->Q), ld_kv = tensor_cols(p->KV);
    const real *k = CONST_DATA(p->KV) + b * p->keys * ld_kv + ld_kv - 2 * a->K * a->A + h / (a->H / a->K) * a->A;
    struct head t = head_places(a, p->q_at, b, h);
    t.q = CONST_DATA(p->Q) + b * p->queries * ld_q + h * a->A, t.k = k, t.v = k + a->K * a->A;
    t.ld_q = ld_q, t.ld_kv = ld_kv, t.queries = p->queries, t.keys = p->keys, t.k_at = p->k_at.data;
    return t;
}

/* Without threads here, products must be too small for the BLAS to start its own threads: it would split the sums in
 * another way, and the bits would differ. */
static bool FN(worth_threads)(int64_t B, const struct attention *a, int64_t queries, int64_t keys)
{
    return B * a->H * queries * keys * a->A > PARALLEL_FROM;
}

/* Dynamic scheduling: blocks late in a sequence have more keys than early ones. */
static void FN(forward)(struct tensor O, struct tensor lse, const struct part *p)
{
    const struct attention *a = &p->a;
    const int64_t blocks = (p->queries + TILE - 1) / TILE;
    assert(tensor_count(O) == p->B * p->queries * a->H * a->A && tensor_count(lse) == p->B * a->H * p->queries);

    #pragma omp parallel for collapse(3) schedule(dynamic) if (FN(worth_threads)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t block = 0; block < blocks; block++) {
                const struct head t = FN(head_at)(p, b, h);
                FN(attention_rows_forward)(DATA(O) + (b * p->queries * a->H + h) * a->A, a->H * a->A,
                                           DATA(lse) + (b * a->H + h) * p->queries, &t, a, block * TILE);
            }
}

void FN(attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a)
{
    const struct part p = FN(whole)(QKV, a);
    FN(forward)(O, lse, &p);
}

void FN(attention_part_forward)(struct tensor O, struct tensor lse, struct tensor Q, struct tensor KV,
                                struct tensor q_at, struct tensor k_at, struct attention a)
{
    const struct part p = FN(part_of)(Q, KV, q_at, k_at, a);
    FN(forward)(O, lse, &p);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* D of a head's queries q0..: of delta, or computed from the output. */
static void FN(deltas)(real *D, struct tensor delta, struct tensor dO, struct tensor O, const struct part *p, int64_t b,
                       int64_t h, int64_t q0)
{
    const int64_t rows = p->queries - q0 < TILE ? p->queries - q0 : TILE, A = p->a.A, ld = p->a.H * A;
    const int64_t at = (b * p->queries + q0) * ld + h * A;
    for (int64_t r = 0; r < rows; r++)
        D[r] = tensor_present(delta) ? CONST_DATA(delta)[(b * p->a.H + h) * p->queries + q0 + r]
                                     : FN(dot)(CONST_DATA(dO) + at + r * ld, CONST_DATA(O) + at + r * ld, A);
}

/* The columns of a key/value head's key; those of its value begin K A columns further. */
static int64_t FN(key_column)(struct tensor dKV, const struct attention *a, int64_t kv)
{
    return tensor_cols(dKV) - 2 * a->K * a->A + kv * a->A;
}

static struct FN(head_gradients) FN(gradients_at)(struct tensor dQ, struct tensor dKV, const struct part *p, int64_t b,
                                                  int64_t h)
{
    const struct attention *a = &p->a;
    const int64_t ld_q = tensor_cols(dQ), ld_kv = tensor_cols(dKV);
    real *dk = DATA(dKV) + b * p->keys * ld_kv + FN(key_column)(dKV, a, h / (a->H / a->K));
    return (struct FN(head_gradients)){ .dq = DATA(dQ) + b * p->queries * ld_q + h * a->A, .dk = dk,
                                        .dv = dk + a->K * a->A, .ld_dq = ld_q, .ld_dkv = ld_kv };
}

/* The queries of a head add to their own gradients and to those of their keys and values. */
static void FN(head_backward)(struct FN(head_gradients) g, struct tensor dO, struct tensor O, struct tensor delta,
                              struct tensor lse, const struct part *p, int64_t b, int64_t h)
{
    const struct attention *a = &p->a;
    const int64_t ld_o = a->H * a->A;
    const struct head t = FN(head_at)(p, b, h);
    for (int64_t q0 = 0; q0 < p->queries; q0 += TILE) {
        real D[TILE];
        FN(deltas)(D, delta, dO, O, p, b, h, q0);
        FN(attention_rows_backward)(g, CONST_DATA(dO) + b * p->queries * ld_o + h * a->A, ld_o,
                                    CONST_DATA(lse) + (b * a->H + h) * p->queries, D, &t, a, q0);
    }
}

/* One thread computes a key/value head of a sequence, so that its sums run in order. */
static void FN(backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor O, struct tensor delta,
                         struct tensor lse, const struct part *p)
{
    const struct attention *a = &p->a;
    const int64_t group = a->K > 0 ? a->H / a->K : 0;
    assert(tensor_count(lse) == p->B * a->H * p->queries && tensor_count(dO) == p->B * p->queries * a->H * a->A);

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(worth_threads)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t kv = 0; kv < a->K; kv++) {
#ifdef SUMS_EXACTLY
            const int64_t key = FN(key_column)(dKV, a, kv);
            struct key_sums sums = key_sums_begin(p->keys, a->A);
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                struct FN(head_gradients) g = FN(gradients_at)(dQ, dKV, p, b, h);
                g.dk = sums.part, g.dv = sums.part + a->A, g.ld_dkv = 2 * a->A;
                key_sums_clear(&sums);
                FN(head_backward)(g, dO, O, delta, lse, p, b, h);
                key_sums_add(&sums);
            }
            key_sums_give(&sums, dKV, b * p->keys, key, key + a->K * a->A);
#else
            for (int64_t h = kv * group; h < (kv + 1) * group; h++)
                FN(head_backward)(FN(gradients_at)(dQ, dKV, p, b, h), dO, O, delta, lse, p, b, h);
#endif
        }
}

void FN(attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct tensor QKV, struct attention a)
{
    const struct part p = FN(whole)(QKV, a);
    assert(tensor_count(dQKV) == tensor_count(QKV) && tensor_count(O) == tensor_count(dO));
    if (tensor_count(dQKV) > 0) memset(dQKV.data, 0, tensor_bytes(dQKV));
    FN(backward)(dQKV, dQKV, dO, O, tensor_none, lse, &p);
}

void FN(attention_part_backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor delta,
                                 struct tensor lse, struct tensor Q, struct tensor KV, struct tensor q_at,
                                 struct tensor k_at, struct attention a)
{
    const struct part p = FN(part_of)(Q, KV, q_at, k_at, a);
    FN(backward)(dQ, dKV, dO, tensor_none, delta, lse, &p);
}
