/* attention_parts.c -- finds the rows and heads of a call of attention.  ref/ops/attention.c and ref/exact/attention.c
 * call these functions; the Makefile compiles the file once for each format.  No function reports errors. */
#include "ref/ops/attention_parts.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"

struct part FN(attention_parts_of)(struct tensor Q, struct tensor KV, struct tensor q_at, struct tensor k_at,
                                   struct attention a)
{
    struct part p = { Q, KV, q_at, k_at, a, tensor_present(q_at) ? tensor_count(q_at) : a.S,
                      tensor_present(k_at) ? tensor_count(k_at) : a.S, 0, tensor_cols(KV) - 2 * a.K * a.A };
    p.B = p.queries > 0 ? tensor_rows(Q) / p.queries : p.keys > 0 ? tensor_rows(KV) / p.keys : 0;
    assert(a.S >= 0 && a.H >= 0 && a.K >= 0 && a.A >= 0 && (a.K == 0 ? a.H == 0 : a.H % a.K == 0));
    assert(tensor_cols(Q) >= a.H * a.A);
    assert(tensor_rows(Q) == p.B * p.queries && tensor_rows(KV) == p.B * p.keys);
    return p;
}

struct part FN(attention_parts_with_keys)(struct tensor Q, struct tensor K, int64_t first, struct tensor q_at,
                                          struct tensor k_at, struct attention a)
{
    struct part p = FN(attention_parts_of)(Q, K, q_at, k_at, a);
    assert(first >= 0 && tensor_cols(K) >= first + a.K * a.A);
    return p.first = first, p;
}

struct part FN(attention_parts_whole)(struct tensor QKV, struct attention a)
{
    assert(tensor_cols(QKV) == (a.H + 2 * a.K) * a.A);
    return FN(attention_parts_of)(QKV, QKV, tensor_none, tensor_none, a);
}

/* Queries are the first columns of their tensor, keys and values the last of theirs. */
struct head FN(attention_parts_head)(const struct part *p, int64_t b, int64_t h)
{
    const struct attention *a = &p->a;
    const int64_t ld_q = tensor_cols(p->Q), ld_kv = tensor_cols(p->KV);
    const real *k = CONST_DATA(p->KV) + b * p->keys * ld_kv + p->first + h / (a->H / a->K) * a->A;
    struct head t = head_places(a, p->q_at, b, h);
    t.q = CONST_DATA(p->Q) + b * p->queries * ld_q + h * a->A, t.k = k, t.v = k + a->K * a->A;
    t.ld_q = ld_q, t.ld_kv = ld_kv, t.queries = p->queries, t.keys = p->keys, t.k_at = p->k_at.data;
    return t;
}

bool FN(attention_parts_many)(int64_t B, const struct attention *a, int64_t queries, int64_t keys)
{
    return B * a->H * queries * keys * a->A > PARALLEL_FROM;
}

void FN(attention_parts_top)(struct tensor top, const struct part *p, bool more)
{
    const struct attention *a = &p->a;
    const int64_t blocks = (p->queries + TILE - 1) / TILE;
    assert(tensor_count(top) == p->B * a->H * p->queries);
    for (int64_t i = 0; i < tensor_count(top) && !more; i++) DATA(top)[i] = -(real)INFINITY;

    #pragma omp parallel for collapse(3) schedule(dynamic) if (FN(attention_parts_many)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t block = 0; block < blocks; block++) {
                const struct head t = FN(attention_parts_head)(p, b, h);
                FN(attention_rows_top)(DATA(top) + (b * a->H + h) * p->queries, &t, a, block * TILE);
            }
}

void FN(attention_parts_delta)(real *D, struct tensor delta, struct tensor dO, struct tensor O, const struct part *p,
                               int64_t b, int64_t h, int64_t q0)
{
    const int64_t rows = p->queries - q0 < TILE ? p->queries - q0 : TILE, A = p->a.A, ld = p->a.H * A;
    const int64_t at = (b * p->queries + q0) * ld + h * A;
    for (int64_t r = 0; r < rows; r++)
        D[r] = tensor_present(delta) ? CONST_DATA(delta)[(b * p->a.H + h) * p->queries + q0 + r]
                                     : FN(dot)(CONST_DATA(dO) + at + r * ld, CONST_DATA(O) + at + r * ld, A);
}
