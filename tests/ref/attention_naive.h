/* attention_naive.h -- attention by loops over all pairs of tokens of each head, in numbers that carry their error:
 * what the operation is compared with, whole, merged from parts or with stored scores (then there is no lse).
 * test_ops_attention.c and test_ops_attention_part.c call these functions. */
#ifndef ORRERY_ATTENTION_NAIVE_H
#define ORRERY_ATTENTION_NAIVE_H

#include "tests/ref/test_ops.h"

enum { TILE = 64 };                     /* keys per tile in the operation: only the error bound knows */

static struct tensor QKV, O, lse, dO, dQKV, dsinks;      /* dsinks: of a.sinks, if there are any; adds to 1 */
static struct attention a;
static int merges;                      /* how many results were merged into each row's, at most */

static inline void setup(const struct ops *op, int64_t B, struct attention shape, double size)
{
    const enum dtype t = op->dtype;
    const int64_t N = B * shape.S, width = (shape.H + 2 * shape.K) * shape.A;
    a = shape;
    a.drop.cols = a.drop.cols ? a.drop.cols : a.H;
    CASE("attention %s B=%d S=%d H=%d K=%d A=%d dropout %g", dtype_name(t), (int)B, (int)a.S, (int)a.H, (int)a.K,
         (int)a.A, a.drop.p);
    QKV = fill(matrix(t, N, width), size, "qkv"), dQKV = matrix(t, N, width);
    O = matrix(t, N, a.H * a.A), lse = matrix(t, B * a.H, a.S), dO = fill(matrix(t, N, a.H * a.A), 1, "do");
}

/* ---- the naive one: all S x S of one head ------------------------------------------------------------------------ */

static inline int64_t q_col(int64_t b, int64_t s, int64_t h) { return ((b * a.S + s) * (a.H + 2 * a.K) + h) * a.A; }
static inline int64_t k_col(int64_t b, int64_t s, int64_t h) { return q_col(b, s, a.H + h / (a.H / a.K)); }
static inline int64_t v_col(int64_t b, int64_t s, int64_t h) { return q_col(b, s, a.H + a.K + h / (a.H / a.K)); }
static inline int64_t o_col(int64_t b, int64_t s, int64_t h) { return ((b * a.S + s) * a.H + h) * a.A; }

static inline num dot(struct tensor x, int64_t i, struct tensor y, int64_t j)
{
    struct sum s = { 0 };
    for (int64_t d = 0; d < a.A; d++) sum_add(&s, times(at(x, i + d), at(y, j + d)));
    return sum_end(s);
}

static inline num dropout_factor(int64_t b, int64_t h, int64_t query, int64_t key)
{
    if (a.drop.p == 0) return exact(1);
    const int64_t row = ((a.drop.row0 + b) * a.drop.cols + a.drop.col0 + h) * a.S + query;
    const bool keep = random_uniform(a.drop.seed, a.drop.stream, (uint64_t)(row * a.S + key)) >= a.drop.p;
    return keep ? rounded(1 / (1 - (long double)a.drop.p), 0) : exact(0);
}

/* Whether a query sees a key: causal, or in one of the ranges of the mask; and in its window. */
static inline bool sees(int64_t b, int64_t query, int64_t key)
{
    if (a.window > 0 && key <= query - a.window) return false;
    if (!tensor_present(a.mask)) return key <= query;
    const int64_t ranges = tensor_cols(a.mask) / 2, row = tensor_rows(a.mask) == a.S ? query : b * a.S + query;
    for (int64_t i = 0; i < ranges; i++)
        if (key >= id_at(a.mask, 2 * (row * ranges + i)) && key < id_at(a.mask, 2 * (row * ranges + i) + 1))
            return true;
    return false;
}

/* What the running maximum costs, relative to exp(s - max): each tile of keys may shrink what came before it, by an exp
 * (two units) of a difference (half a unit of each of two maxima) and a product; a merge does this to both sides and
 * divides. */
static inline num shrunk(num p, num range)
{
    const long double tiles = (long double)((a.S + TILE - 1) / TILE);
    p.e += p.v * unit * (4 * tiles + 8 * merges + 2 * fabsl(range.v));
    return p;
}

/* The logit of a head's sink. */
static inline num sink_of(int64_t h) { return tensor_present(a.sinks) ? at(a.sinks, h) : exact(-INFINITY); }

/* Row `query` of head h: scores, probabilities, log-sum-exp.  @return whether it sees a key. */
struct naive_row { num *s, *p, lse; };

static inline bool naive_row(struct naive_row *r, int64_t b, int64_t h, int64_t query)
{
    num top = sink_of(h), least = exact(tensor_present(a.sinks) ? top.v : INFINITY);
    struct sum total = { 0 };
    for (int64_t k = 0; k < a.S; k++) {
        r->s[k] = times(rounded(a.scale, 0), dot(QKV, q_col(b, query, h), QKV, k_col(b, k, h)));
        if (a.cap > 0) r->s[k] = times(rounded(a.cap, 0), hyperbolic(over(r->s[k], rounded(a.cap, 0))));
        if (sees(b, query, k)) top.v = fmaxl(top.v, r->s[k].v), least.v = fminl(least.v, r->s[k].v);
    }
    const num range = exact(top.v - least.v);
    for (int64_t k = 0; k < a.S; k++) {
        r->p[k] = exact(0);
        if (sees(b, query, k)) sum_add(&total, r->p[k] = shrunk(expo(minus(r->s[k], top)), range));
    }
    if (total.n == 0) return false;
    if (tensor_present(a.sinks)) sum_add(&total, shrunk(expo(minus(sink_of(h), top)), range));
    const num inverse = over(exact(1), sum_end(total));
    r->lse = plus(top, logarithm(sum_end(total)));
    r->lse.e += merges * unit * (2 * (fabsl(r->lse.v) + fabsl(range.v)) + 4);
    for (int64_t k = 0; k < a.S; k++) r->p[k] = times(r->p[k], inverse);
    return true;
}

static inline void expect_blind(int64_t b, int64_t h, int64_t query)
{
    if (tensor_present(lse) && tensor_get(lse, (b * a.H + h) * a.S + query) != (double)sink_of(h).v)
        fail_msg("%s: query %d of head %d sees no key, but lse is not -infinity, or the sink", case_name, (int)query,
                 (int)h);
    for (int64_t d = 0; d < a.A; d++) {
        expect_near("O of a query without keys", O, o_col(b, query, h) + d, exact(0));
        expect_near("dQ of a query without keys", dQKV, q_col(b, query, h) + d, exact(0));
    }
}

/* The derivative of the cap at the capped score s.  Stored scores are log(p) + lse again. */
static inline num cap_slope(num s, num lse_of_row)
{
    if (!tensor_present(lse)) s.e += 2 * unit * (fabsl(s.v - lse_of_row.v) + fabsl(lse_of_row.v) + 8) + lse_of_row.e;
    const num t = over(s, rounded(a.cap, 0));
    return times(minus(exact(1), t), plus(exact(1), t));
}

/* One query's output, and what it adds to the gradients of a key/value head: sums [S,A]; and of the head's sink. */
static inline void check_query(int64_t b, int64_t h, int64_t query, const struct naive_row *row, struct sum *dk,
                               struct sum *dv, struct sum *dsink)
{
    const int64_t A = a.A;
    struct sum o[TILE] = { 0 }, dq[TILE] = { 0 }, D = { 0 };
    if (tensor_present(lse)) expect_near("lse", lse, (b * a.H + h) * a.S + query, row->lse);
    for (int64_t k = 0; k < a.S; k++)
        for (int64_t d = 0; d < A && sees(b, query, k); d++)
            sum_add(&o[d], times(times(row->p[k], dropout_factor(b, h, query, k)), at(QKV, v_col(b, k, h) + d)));
    for (int64_t d = 0; d < A; d++) {
        const num out = sum_end(o[d]);
        expect_near("O", O, o_col(b, query, h) + d, out);
        sum_add(&D, times(at(dO, o_col(b, query, h) + d), out));
    }
    if (tensor_present(a.sinks))
        sum_add(dsink, times(exact(-1), times(expo(minus(sink_of(h), row->lse)), sum_end(D))));
    for (int64_t k = 0; k < a.S; k++) {
        if (!sees(b, query, k)) continue;
        const num factor = dropout_factor(b, h, query, k), p = expo(minus(row->s[k], row->lse));
        const num dp = times(dot(dO, o_col(b, query, h), QKV, v_col(b, k, h)), factor);
        num ds = times(rounded(a.scale, 0), times(p, minus(dp, sum_end(D))));
        if (a.cap > 0) ds = times(ds, cap_slope(row->s[k], row->lse));
        for (int64_t d = 0; d < A; d++) {
            sum_add(&dq[d], times(ds, at(QKV, k_col(b, k, h) + d)));
            sum_add(&dk[k * A + d], times(ds, at(QKV, q_col(b, query, h) + d)));
            sum_add(&dv[k * A + d], times(times(p, factor), at(dO, o_col(b, query, h) + d)));
        }
    }
    for (int64_t d = 0; d < A; d++) expect_near("dQ", dQKV, q_col(b, query, h) + d, sum_end(dq[d]));
}

static inline void check_head(int64_t b, int64_t h, struct sum *dk, struct sum *dv, struct sum *dsink)
{
    num *s = calloc((size_t)(2 * a.S), sizeof *s);
    struct naive_row row = { .s = s, .p = s + a.S };
    assert_non_null(s);
    for (int64_t query = 0; query < a.S; query++)
        if (naive_row(&row, b, h, query)) check_query(b, h, query, &row, dk, dv, dsink);
        else expect_blind(b, h, query);
    free(s);
}

static inline void check_all(int64_t B)
{
    struct sum *dsink = calloc((size_t)a.H + 1, sizeof *dsink);
    assert_non_null(dsink);
    for (int64_t b = 0; b < B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            struct sum *dk = calloc((size_t)(2 * a.S * a.A), sizeof *dk), *dv = dk + a.S * a.A;
            assert_non_null(dk);
            const int64_t group = a.H / a.K;
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) check_head(b, h, dk, dv, &dsink[h]);
            for (int64_t i = 0; i < a.S * a.A; i++) {
                expect_near("dK", dQKV, k_col(b, i / a.A, kv * group) + i % a.A, sum_end(dk[i]));
                expect_near("dV", dQKV, v_col(b, i / a.A, kv * group) + i % a.A, sum_end(dv[i]));
            }
            free(dk);
        }
    for (int64_t h = 0; tensor_present(a.sinks) && h < a.H; h++)
        expect_near("dsinks", dsinks, h, plus(exact(1), sum_end(dsink[h])));
    free(dsink);
}

/* Sinks, of logits between -2 and 2, for the case that was set up. */
static inline void setup_sinks(void)
{
    a.sinks = fill(vector(QKV.dtype, a.H), 2, "sinks"), dsinks = fill_with(vector(QKV.dtype, a.H), 1);
}

#endif
