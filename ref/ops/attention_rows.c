/* attention_rows.c -- computes attention of a tile of queries of one head, forward and backward.
 * ref/ops/attention.c runs the tiles; ref/ops/attention_scores.c uses dropout and softmax of single rows.  The
 * Makefile compiles the file twice: `real` is float or double.  No function reports errors. */
#include "ref/ops/attention_rows.h"
#include "ref/ops/exp.h"
#include "ref/ops/gemm.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/soft_cap.h"
#include "ref/numeric/philox.h"

/* ---- what a query sees ------------------------------------------------------------------------------------------- */

/* Ranges of positions, first and end, in order; nothing before `from`. */
struct view { const int32_t *range; int64_t count; int32_t causal[2], from; };

static int32_t position(const int32_t *at, int64_t row) { return at != NULL ? at[row] : (int32_t)row; }

static void attention_rows_look(struct view *view, const struct head *head, int64_t query)
{
    const int32_t at = position(head->q_at, query);
    *view = (struct view){ .causal = { 0, at + 1 }, .count = head->mask != NULL ? head->ranges : 1 };
    view->range = head->mask != NULL ? head->mask + 2 * head->ranges * at : view->causal;
    if (head->window > 0 && head->window <= at) view->from = (int32_t)(at + 1 - head->window);
}

static int32_t first_of(const struct view *view, int64_t i)
{
    return view->range[2 * i] > view->from ? view->range[2 * i] : view->from;
}

static int32_t attention_rows_end_of(const struct view *view, int64_t i) { return view->range[2 * i + 1]; }

enum sight { NOTHING, SOMETHING, EVERYTHING };

/* This describes keys at positions first to last, and perhaps not at all of those between. */
static enum sight sight(const struct view *view, int32_t first, int32_t last)
{
    for (int64_t i = 0; i < view->count; i++) {
        if (first_of(view, i) <= first && last < attention_rows_end_of(view, i)) return EVERYTHING;
        if (first_of(view, i) <= last && first < attention_rows_end_of(view, i)) return SOMETHING;
    }
    return NOTHING;
}

/* Return what some queries see of some keys. */
static enum sight tile_sight(const struct head *head, int64_t q0, int64_t rows, int64_t k0, int64_t cols)
{
    const int32_t first = position(head->k_at, k0), last = position(head->k_at, k0 + cols - 1);
    int64_t seen[3] = { 0 };
    for (int64_t r = 0; r < rows; r++) {
        struct view v;
        attention_rows_look(&v, head, q0 + r);
        seen[sight(&v, first, last)]++;
    }
    return seen[NOTHING] == rows ? NOTHING : seen[EVERYTHING] == rows ? EVERYTHING : SOMETHING;
}

/* ---- one tile of scores ------------------------------------------------------------------------------------------ */

/* Scores of keys that a query does not see become -infinity. */
static void FN(hide)(real *tile, const struct head *t, int64_t q0, int64_t rows, int64_t k0, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        struct view v;
        attention_rows_look(&v, t, q0 + r);
        for (int64_t c = 0, i = 0; c < cols; c++) {
            const int32_t at = position(t->k_at, k0 + c);
            while (i < v.count && at >= attention_rows_end_of(&v, i)) i++;
            if (i == v.count || at < first_of(&v, i)) tile[r * TILE + c] = -(real)INFINITY;
        }
    }
}

bool FN(attention_rows_score)(real *tile, const struct head *t, const struct attention *a, int64_t q0, int64_t rows,
                              int64_t k0, int64_t cols)
{
    const enum sight seen = tile_sight(t, q0, rows, k0, cols);
    if (seen == NOTHING) return false;
    /* tile = scale Q K^T, capped */
    FN(gemm)(AS_IS, TRANSPOSED, rows, cols, a->A, a->scale, t->q + q0 * t->ld_q, t->ld_q, t->k + k0 * t->ld_kv,
             t->ld_kv, 0, tile, TILE);
    for (int64_t r = 0; r < rows && a->cap > 0; r++) FN(cap_row)(tile + r * TILE, (real)a->cap, cols);
    if (seen == SOMETHING) FN(hide)(tile, t, q0, rows, k0, cols);
    return true;
}

/* The number of keys from k0 on, at most n, whose positions follow each other in a sequence of S. */
static int64_t adjacent(const struct head *head, int64_t k0, int64_t n, int64_t S)
{
    const int64_t left = S - position(head->k_at, k0) % S;
    int64_t i = 1;
    if (n > left) n = left;
    while (i < n && position(head->k_at, k0 + i) == position(head->k_at, k0) + i) i++;
    return i;
}

void FN(attention_drop)(real *x, int64_t ld, const struct head *t, const struct attention *a, int64_t q0, int64_t rows,
                        int64_t k0, int64_t cols)
{
    if (a->drop.p == 0) return;
    const real grow = (real)(1 / (1 - a->drop.p));
    const int64_t S = attention_each(a);
    for (int64_t c0 = 0, n; c0 < cols; c0 += n) {
        n = adjacent(t, k0 + c0, cols - c0, S);
        for (int64_t r = 0; r < rows; r++) {
            float draw[TILE];
            const int64_t query = position(t->q_at, q0 + r);
            const int64_t row = t->drop_row + query / S * a->drop.cols * S + query % S;
            random_uniforms(draw, n, a->drop.seed, a->drop.stream,
                            (uint64_t)(row * S + position(t->k_at, k0 + c0) % S));
            for (int64_t c = 0; c < n; c++) x[r * ld + c0 + c] *= draw[c] >= a->drop.p ? grow : 0;
        }
    }
}

/* x = exp(x - top); returns the sum. */
static real FN(exp_row)(real *restrict x, real top, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = FN(fast_exp)(x[i] - top);
    return FN(sum)(x, n);
}

static void FN(scale_row)(real *restrict x, real factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void FN(clear_columns)(real *x, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) x[r * ld + c] = 0;
}

/* ---- a row of scores --------------------------------------------------------------------------------------------- */

/* The i-th range of what a query sees; it may end after the sequence, or before what the window has. */
static void part_seen(const struct view *view, int64_t i, int64_t S, int64_t *first, int64_t *end)
{
    *end = attention_rows_end_of(view, i) < S ? attention_rows_end_of(view, i) : S;
    *first = first_of(view, i) < *end ? first_of(view, i) : *end;
}

/* Whether a query sees one key of its sequence, and nothing more: the probability of that key is 1, whatever its score
 * is. */
static bool sees_one(const struct head *head, const struct attention *attention, int64_t query)
{
    struct view v;
    int64_t seen = 0, first, end;
    attention_rows_look(&v, head, query);
    for (int64_t i = 0; i < v.count && seen < 2; i++) {
        part_seen(&v, i, attention->S, &first, &end);
        seen += end - first;
    }
    return seen == 1 && !attention->more && !tensor_present(attention->sinks);
}

real FN(attention_row_softmax)(real *x, const struct head *t, const struct attention *a, int64_t query)
{
    struct view v;
    int64_t seen = 0, done = 0, first, end;
    real top = -(real)INFINITY, total = 0;
    attention_rows_look(&v, t, query);
    for (int64_t i = 0; i < v.count; i++) {
        part_seen(&v, i, a->S, &first, &end);
        const real most = FN(max)(x + first, end - first);
        top = most > top ? most : top;
        seen += end - first;
    }
    for (int64_t i = 0; i < v.count; i++) {
        part_seen(&v, i, a->S, &first, &end);
        FN(clear_columns)(x + done, 0, 1, first - done);
        total += FN(exp_row)(x + first, top, end - first);
        done = end;
    }
    FN(clear_columns)(x + done, 0, 1, a->S - done);
    if (seen > 0) FN(scale_row)(x, 1 / total, done);
    return seen > 0 ? top + REAL_FN(log)(total) : -(real)INFINITY;
}

/* ---- gradients of a tile ----------------------------------------------------------------------------------------- */

/* A row of a tile: p = its probabilities, from scores; ds = the gradients of scores, from those of probabilities. */
static void FN(score_gradients)(real *restrict p, real *restrict ds, real lse, real D, real cap, int64_t n)
{
    const bool blind = lse == -(real)INFINITY;
    for (int64_t c = 0; c < n; c++) ds[c] -= D;
    for (int64_t c = 0; c < n && cap > 0; c++) ds[c] *= FN(cap_slope)(p[c], cap);
    for (int64_t c = 0; c < n; c++) {
        p[c] = blind ? 0 : FN(fast_exp)(p[c] - lse);
        ds[c] *= p[c];
    }
}

bool FN(attention_rows_differentiate)(real *p, real *ds, const real *d_o, int64_t ld_o, const real *lse, const real *D,
                                      const struct head *t, const struct attention *a, int64_t q0, int64_t rows,
                                      int64_t k0, int64_t cols)
{
    if (!FN(attention_rows_score)(p, t, a, q0, rows, k0, cols)) return false;
    FN(gemm)(AS_IS, TRANSPOSED, rows, cols, a->A, 1, d_o, ld_o, t->v + k0 * t->ld_kv, t->ld_kv, 0, ds, TILE);
    FN(attention_drop)(ds, TILE, t, a, q0, rows, k0, cols);
    for (int64_t r = 0; r < rows; r++) {
        FN(score_gradients)(p + r * TILE, ds + r * TILE, lse[r], D[r], (real)a->cap, cols);
        if (sees_one(t, a, q0 + r)) FN(clear_columns)(ds + r * TILE, 0, 1, cols);
    }
    return true;
}

/* ---- sums over keys whose largest score is known ----------------------------------------------------------------- */

void FN(attention_rows_top)(real *top, const struct head *t, const struct attention *a, int64_t q0)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE;
    real tile[TILE * TILE];
    top += q0;
    for (int64_t r = 0; r < rows; r++) top[r] = t->sink > top[r] ? t->sink : top[r];
    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        if (!FN(attention_rows_score)(tile, t, a, q0, rows, k0, cols)) continue;
        for (int64_t r = 0; r < rows; r++) {
            const real most = FN(max)(tile + r * TILE, cols);
            top[r] = most > top[r] ? most : top[r];
        }
    }
}

#ifndef SUMS_EXACTLY            /* ref/exact/attention.c has the sums that do not round */

void FN(attention_rows_sum)(real *o, int64_t ld_o, real *total, const real *top, const struct head *t,
                            const struct attention *a, int64_t q0)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE;
    real tile[TILE * TILE];
    o += q0 * ld_o, total += q0, top += q0;
    for (int64_t r = 0; r < rows; r++) total[r] += top[r] > -(real)INFINITY ? FN(fast_exp)(t->sink - top[r]) : 0;
    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        if (!FN(attention_rows_score)(tile, t, a, q0, rows, k0, cols)) continue;
        for (int64_t r = 0; r < rows; r++) {
            if (top[r] == -(real)INFINITY) FN(clear_columns)(tile + r * TILE, 0, 1, cols);
            else total[r] += FN(exp_row)(tile + r * TILE, top[r], cols);
        }
        FN(attention_drop)(tile, TILE, t, a, q0, rows, k0, cols);
        FN(gemm)(AS_IS, AS_IS, rows, a->A, cols, 1, tile, TILE, t->v + k0 * t->ld_kv, t->ld_kv, 1, o, ld_o);
    }
}

/* ---- a tile of queries ------------------------------------------------------------------------------------------- */

/* This holds what the softmax of a tile's queries has added up so far. */
struct FN(running) { real top[TILE], total[TILE]; };

/* tile: scores; on return exp(score - top).  If they raise a row's maximum, its output so far, at o, shrinks. */
static void FN(add_scores)(struct FN(running) *s, real *tile, real *o, int64_t ld_o, int64_t rows, int64_t cols,
                           int64_t A, bool first)
{
    for (int64_t r = 0; r < rows; r++) {
        const real tile_top = FN(max)(tile + r * TILE, cols), new_top = tile_top > s->top[r] ? tile_top : s->top[r];
        if (new_top == -(real)INFINITY) {               /* has seen no key so far */
            FN(clear_columns)(tile + r * TILE, 0, 1, cols);
            continue;
        }
        const real shrink = FN(fast_exp)(s->top[r] - new_top);
        s->total[r] = s->total[r] * shrink + FN(exp_row)(tile + r * TILE, new_top, cols);
        if (!first && shrink != 1) FN(scale_row)(o + r * ld_o, shrink, A);
        s->top[r] = new_top;
    }
}

void FN(attention_rows_forward)(real *o, int64_t ld_o, real *lse, const struct head *t, const struct attention *a,
                                int64_t q0)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE;
    struct FN(running) s = { .total = { 0 } };
    real tile[TILE * TILE];
    bool first = true;
    o += q0 * ld_o;
    for (int64_t r = 0; r < rows; r++) s.top[r] = t->sink, s.total[r] = t->sink > -(real)INFINITY;

    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        if (!FN(attention_rows_score)(tile, t, a, q0, rows, k0, cols)) continue;
        FN(add_scores)(&s, tile, o, ld_o, rows, cols, a->A, first);
        FN(attention_drop)(tile, TILE, t, a, q0, rows, k0, cols);
        FN(gemm)(AS_IS, AS_IS, rows, a->A, cols, 1, tile, TILE, t->v + k0 * t->ld_kv, t->ld_kv, !first, o, ld_o);
        first = false;
    }
    if (first) FN(clear_columns)(o, ld_o, rows, a->A);
    for (int64_t r = 0; r < rows; r++) {
        if (s.total[r] > 0) FN(scale_row)(o + r * ld_o, 1 / s.total[r], a->A);
        lse[q0 + r] = s.top[r] + REAL_FN(log)(s.total[r]);
    }
}

void FN(attention_rows_backward)(struct FN(head_gradients) g, const real *d_o, int64_t ld_o, const real *lse,
                                 const real *D, const struct head *t, const struct attention *a, int64_t q0)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE;
    real p[TILE * TILE], ds[TILE * TILE];
    d_o += q0 * ld_o, lse += q0;

    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        const real *q = t->q + q0 * t->ld_q, *k = t->k + k0 * t->ld_kv;
        real *dk = g.dk + k0 * g.ld_dkv, *dv = g.dv + k0 * g.ld_dkv;
        if (!FN(attention_rows_differentiate)(p, ds, d_o, ld_o, lse, D, t, a, q0, rows, k0, cols)) continue;
        FN(gemm)(AS_IS, AS_IS, rows, a->A, cols, a->scale, ds, TILE, k, t->ld_kv, 1, g.dq + q0 * g.ld_dq, g.ld_dq);
        FN(gemm)(TRANSPOSED, AS_IS, cols, a->A, rows, a->scale, ds, TILE, q, t->ld_q, 1, dk, g.ld_dkv);
        FN(attention_drop)(p, TILE, t, a, q0, rows, k0, cols);
        FN(gemm)(TRANSPOSED, AS_IS, cols, a->A, rows, 1, p, TILE, d_o, ld_o, 1, dv, g.ld_dkv);
    }
}

#endif
