/* attention.c -- attention whose sums do not depend on how queries and keys are cut, or in which order they come.
 *
 * Source    the formulas of ref/ops/attention.c; sums: docs/checking/exact.md
 * Shapes    as there; O and total of _sums, dQ and dKV of _part_backward are EXACT
 * Scores    in fp32, and so are probabilities p and gradients of scores ds: each belongs to one query and one key;
 *           with operands of two slices products of queries and keys are added in fp64 (gemm_in_order.h)
 * Forward   the largest score of a query is known before any sum: a maximum does not depend on the order
 *           total = sum_keys exp(s - top),  O = sum_keys(m exp(s - top) v),  rounded once: O / total
 * Backward  dv = sum_queries(m p do),  dq = sum_keys(scale ds k),  dk = sum_queries(scale ds q)
 *           each is one sum, over all query heads of a key head too
 * Sums      a term is a weight, exp(s - top), m p or scale ds, times a row: a value, key, query or gradient.  A row
 *           becomes integers on its own grid, a weight a multiple of 2^-36 or 2^-64; products and sums are exact
 * Tiles     fp64 adds TILE products of ROW_BITS and WEIGHT_BITS bits without rounding.  Weights of more bits are cut
 *           into slices, and each slice is multiplied by itself; how they are cut leaves no trace
 * Called    ref/ops/ops.def lists the operations; ops_exact returns them.  If there is no memory for the integers, the
 *           program is aborted, as in the BLAS.
 */
#include "ref/exact/grid.h"
#include "ref/exact/unrounded.h"
#include "ref/numeric/convert.h"
#include "ref/ops/attention_parts.h"
#include "ref/ops/exp.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef I

/* Bits of rows, and of a slice of a weight. */
#define ROW_BITS exact_bits_of(RULE).row
#define WEIGHT_BITS exact_bits_of(RULE).weight

static void *attention_take(int64_t count, size_t size)
{
    void *p = malloc((size_t)(count > 0 ? count : 1) * size);
    if (p == NULL) fprintf(stderr, "orrery: no memory for %lld integers of attention\n", (long long)count), abort();
    return p;
}

/* ---- rows on their grids ----------------------------------------------------------------------------------------- */

/* Rows of one head: integers [rows, A] times 2^grid of each row. */
struct grid_rows { double *integer; int *grid; };

static struct grid_rows rows_on_grids(const real *x, int64_t ld, int64_t rows, int64_t A, int finest)
{
    const struct grid_rows g = { attention_take(rows * A, sizeof *g.integer), attention_take(rows, sizeof *g.grid) };
    for (int64_t n = 0; n < rows; n++) {
        const real *const row = x + n * ld;
        real top = 0;
        /* A NaN fails the comparison, and stays. */
        for (int64_t i = 0; i < A; i++) top = fabsf(row[i]) <= top ? top : fabsf(row[i]) > top ? fabsf(row[i]) : NAN;
        g.grid[n] = grid_of((double)top, ROW_BITS, finest);
        const double unit = g.grid[n] == GRID_ZERO || g.grid[n] == GRID_NONE ? 0 : fixed_power(-g.grid[n]);
        for (int64_t i = 0; i < A; i++) g.integer[n * A + i] = unit > 0 ? grid_round((double)row[i] * unit) : 0;
    }
    return g;
}

static void rows_free(struct grid_rows g) { free(g.integer), free(g.grid); }

/* ---- sums of weighted rows --------------------------------------------------------------------------------------- */

/* to [count, A] += weight [count, terms] times rows [terms, A].  Weights are multiples of 2^finest after rounding. */
struct weighted {
    const real *weight;
    int64_t step, term_step;            /* from one result to the next, and from one term to the next */
    int64_t count, terms, A;
    int finest;
    const double *integer;              /* [terms, A] */
    const int *grid;                    /* [terms] */
    void *to;                           /* sums, rows `ld` apart */
    int64_t ld;
};

/* The nearest integer; fp32 numbers from 2^24 on are integers. */
static inline double weight_round(double x) { return fabs(x) < 0x1p24 ? grid_round(x) : x; }

/* The powers of two that bring the rows of all terms to the lowest of their grids; 0 of rows without numbers.
 * @return the exponent of that grid; *none: whether a row has no grid. */
static int terms_scale(double *scale, const struct weighted *s, bool *none)
{
    int lowest = INT32_MAX;
    *none = false;
    for (int64_t t = 0; t < s->terms; t++)
        if (s->grid[t] != GRID_ZERO && s->grid[t] < lowest) lowest = s->grid[t];
    if (lowest == GRID_NONE) lowest = 0;
    for (int64_t t = 0; t < s->terms; t++) {
        const bool empty = s->grid[t] == GRID_ZERO || s->grid[t] == GRID_NONE;
        scale[t] = empty ? 0 : fixed_power(s->grid[t] - lowest);
        *none |= s->grid[t] == GRID_NONE;
    }
    return lowest;
}

/* Weights on their grid, times the scales of their terms.  @return whether the sum exists: all weights are finite, and
 * none but 0 has a row without a grid. */
static bool weights_take(double *w, const struct weighted *s, int64_t row, const double *scale, bool none)
{
    const double unit = fixed_power(-s->finest);
    const real *const weight = s->weight + row * s->step;
    double finite = 0;
    bool exists = true;
    for (int64_t t = 0; t < s->terms; t++) {
        const double x = weight_round((double)weight[t * s->term_step] * unit);
        finite += x - x;                                        /* 0, or NaN from the first weight on that is none */
        w[t] = x * scale[t];
    }
    for (int64_t t = 0; t < s->terms && none; t++)
        exists &= s->grid[t] != GRID_NONE || weight_round((double)weight[t * s->term_step] * unit) == 0;
    exists &= finite == 0;
    for (int64_t t = 0; t < s->terms && !exists; t++) w[t] = 0;
    return exists;
}

/* Cut the upper WEIGHT_BITS bits off the weights of a result.  @return their exponent; *left: whether more are left. */
static int weights_slice(double *slice, double *w, int64_t terms, bool *left)
{
    double top = 0, rest = 0;
    int exponent = 0;
    for (int64_t t = 0; t < terms; t++) top = fabs(w[t]) > top ? fabs(w[t]) : top;
    if (top > 0) frexp(top, &exponent);
    exponent = exponent > WEIGHT_BITS ? exponent - WEIGHT_BITS : 0;
    const double unit = fixed_power(exponent), inverse = fixed_power(-exponent);
    for (int64_t t = 0; t < terms; t++) {
        slice[t] = grid_round(w[t] * inverse);
        w[t] -= slice[t] * unit;
        rest = fabs(w[t]) > rest ? fabs(w[t]) : rest;
    }
    *left |= rest > 0;
    return exponent;
}

static void sums_spoil(const struct weighted *s, int64_t row)
{
    for (int64_t i = 0; i < s->A; i++) fixed_put(s->to, row * s->ld + i, FIXED_NONE);
}

/* sums [width] += integers below 2^54 times 2^exponent. */
static void sums_add(void *sums, const double *c, int64_t width, int exponent)
{
    const int shift = exponent - FIXED_UNIT;
    /* Most often the product of two 64-bit numbers holds the scaled integer. */
    const int64_t unit = shift < 63 ? (int64_t)1 << shift : 0;
    for (int64_t i = 0; i < width; i++)
        fixed_put(sums, i, fixed_add(fixed_at(sums, i), unit > 0 ? (fixed_sum)(int64_t)c[i] * unit
                                                                 : fixed_scaled((int64_t)c[i], exponent)));
}

/* At most TILE results and TILE terms. */
static void add_weighted(const struct weighted *s)
{
    double w[TILE * TILE], slice[TILE * TILE], c[TILE * TILE], scale[TILE];
    int exponent[TILE];
    bool none;
    const int lowest = terms_scale(scale, s, &none);
    for (int64_t r = 0; r < s->count; r++)
        if (!weights_take(w + r * s->terms, s, r, scale, none)) sums_spoil(s, r);
    for (bool left = true; left;) {
        left = false;
        for (int64_t r = 0; r < s->count; r++)
            exponent[r] = weights_slice(slice + r * s->terms, w + r * s->terms, s->terms, &left);
        for (int64_t first = 0; first < s->A; first += TILE) {
            const int64_t width = s->A - first < TILE ? s->A - first : TILE;
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)s->count, (int)width, (int)s->terms, 1, slice,
                        (int)s->terms, s->integer + first, (int)s->A, 0, c, TILE);
            for (int64_t r = 0; r < s->count; r++)
                sums_add((char *)s->to + (r * s->ld + first) * (int64_t)sizeof(fixed_sum), c + r * TILE, width,
                         exponent[r] + lowest + s->finest);
        }
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Where the sums of one head go: o, rows ld_o apart, and total. */
struct head_sums { void *o, *total; int64_t ld_o; };

/* exp(score - top) of a row, 0 if no key is seen; all are added to its total. */
static void weigh_row(real *x, real top, void *total, int64_t row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = top > -(real)INFINITY ? FN(fast_exp)(x[i] - top) : 0;
        /* A weight has the same grid here and in the sum of values; TILE weights of at most 1 are exact in fp64. */
        sum += weight_round((double)x[i] * fixed_power(-GRID_BESIDE_GRADIENT));
    }
    const fixed_sum all = sum < 0x1p53 ? fixed_scaled((int64_t)sum, GRID_BESIDE_GRADIENT) : FIXED_NONE;
    fixed_put(total, row, fixed_add(fixed_at(total, row), all));
}

/* Add the keys of a head to the sums of its queries q0..: o and total point to the head's row 0. */
static void head_add(struct head_sums to, const real *top, const struct head *t, const struct attention *a, int64_t q0,
                     struct grid_rows v)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE;
    real tile[TILE * TILE];
    for (int64_t r = 0; r < rows; r++) {
        real sink = t->sink;
        if (sink > -(real)INFINITY) weigh_row(&sink, top[q0 + r], to.total, q0 + r, 1);
    }
    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        if (!FN(attention_rows_score)(tile, t, a, q0, rows, k0, cols)) continue;
        for (int64_t r = 0; r < rows; r++) weigh_row(tile + r * TILE, top[q0 + r], to.total, q0 + r, cols);
        FN(attention_drop)(tile, TILE, t, a, q0, rows, k0, cols);
        add_weighted(&(struct weighted){ .weight = tile, .step = TILE, .term_step = 1, .count = rows, .terms = cols,
                                         .A = a->A, .finest = GRID_BESIDE_GRADIENT, .integer = v.integer + k0 * a->A,
                                         .grid = v.grid + k0, .ld = to.ld_o,
                                         .to = (char *)to.o + q0 * to.ld_o * (int64_t)sizeof(fixed_sum) });
    }
}

/* One thread computes a key/value head of a sequence, whose values are on their grids once. */
static void sums_over_keys(struct tensor O, struct tensor total, struct tensor top, const struct part *p)
{
    const struct attention *a = &p->a;
    const int64_t group = a->K > 0 ? a->H / a->K : 0;
    assert(O.dtype == EXACT && total.dtype == EXACT);

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(attention_parts_many)(p->B, a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t kv = 0; kv < a->K; kv++) {
            const struct head first = FN(attention_parts_head)(p, b, kv * group);
            const struct grid_rows v = rows_on_grids(first.v, first.ld_kv, p->keys, a->A, GRID_GRADIENT);
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                const struct head t = FN(attention_parts_head)(p, b, h);
                const int64_t row = (b * a->H + h) * p->queries, o = (b * p->queries * a->H + h) * a->A;
                const struct head_sums to = { (char *)O.data + o * (int64_t)sizeof(fixed_sum),
                                              (char *)total.data + row * (int64_t)sizeof(fixed_sum), a->H * a->A };
                for (int64_t q0 = 0; q0 < p->queries; q0 += TILE)
                    head_add(to, CONST_DATA(top) + row, &t, a, q0, v);
            }
            rows_free(v);
        }
}

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
    sums_over_keys(O, total, top, &p);
}

void FN(attention_part_finish)(struct tensor Y, struct tensor lse, struct tensor O, struct tensor total,
                               struct tensor top, struct attention a)
{
    const int64_t N = tensor_rows(O), n = tensor_cols(top);
    assert(O.dtype == EXACT && total.dtype == EXACT && tensor_count(Y) == tensor_count(O));
    /* For a check: both sums of each quotient. */
    fixed_sum *divisor, *const kept = unrounded_room(Y, a.A, &divisor);
    if (kept) memcpy(kept, O.data, tensor_bytes(O));

    #pragma omp parallel for if (N * a.H * a.A > PARALLEL_FROM)
    for (int64_t row = 0; row < N; row++)
        for (int64_t h = 0; h < a.H; h++) {
            const int64_t at = (row * a.H + h) * a.A, l = (row / n * a.H + h) * n + row % n;
            const double sum = fixed_to_double(fixed_at(total.data, l));
            if (kept) divisor[row * a.H + h] = fixed_at(total.data, l);
            /* Y = O / total, in fp64, then rounded to its format;  lse = top + log(total) */
            for (int64_t i = 0; i < a.A; i++) {
                const double y = sum == 0 ? 0 : fixed_to_double(fixed_at(O.data, at + i)) / sum;
                if (Y.dtype == REAL_DTYPE) DATA(Y)[at + i] = (real)y;
                else tensor_set(Y, at + i, y);
            }
            DATA(lse)[l] = CONST_DATA(top)[l] + REAL_FN(log)((real)sum);
        }
}

/* Tops, sums and result of one call. */
static void attention_run(struct tensor O, struct tensor lse, const struct part *p)
{
    const int64_t N = p->B * p->queries, H = p->a.H, rows = p->B * H;
    const struct tensor top = tensor_2d(attention_take(N * H, sizeof(real)), REAL_DTYPE, rows, p->queries),
                        sums = tensor_2d(attention_take(N * H * p->a.A, sizeof(fixed_sum)), EXACT, N, H * p->a.A),
                        total = tensor_2d(attention_take(N * H, sizeof(fixed_sum)), EXACT, rows, p->queries);
    memset(sums.data, 0, tensor_bytes(sums)), memset(total.data, 0, tensor_bytes(total));
    FN(attention_parts_top)(top, p, false);
    sums_over_keys(sums, total, top, p);
    FN(attention_part_finish)(O, lse, sums, total, top, p->a);
    free(top.data), free(sums.data), free(total.data);
}

void FN(attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a)
{
    const struct part p = FN(attention_parts_whole)(QKV, a);
    attention_run(O, lse, &p);
}

void FN(attention_part_forward)(struct tensor O, struct tensor lse, struct tensor Q, struct tensor KV,
                                struct tensor q_at, struct tensor k_at, struct attention a)
{
    const struct part p = FN(attention_parts_of)(Q, KV, q_at, k_at, a);
    attention_run(O, lse, &p);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Row 0 of the sums of a head; rows `ld_dq` and `ld_dkv` apart. */
struct gradient_sums { char *dq, *dk, *dv; int64_t ld_dq, ld_dkv; };

/* The gradients of a head are computed from these. */
struct head_backward { const real *d_o, *lse, *D; int64_t ld_o; struct grid_rows q, k, d_o_rows; };

static char *sum_row(char *sums, int64_t row, int64_t ld) { return sums + row * ld * (int64_t)sizeof(fixed_sum); }

/* Queries q0.. of a head with all keys. */
static void add_gradients(struct gradient_sums to, const struct head_backward *x, const struct head *t,
                          const struct attention *a, int64_t q0)
{
    const int64_t rows = t->queries - q0 < TILE ? t->queries - q0 : TILE, A = a->A;
    real p[TILE * TILE], ds[TILE * TILE];
    for (int64_t k0 = 0; k0 < t->keys; k0 += TILE) {
        const int64_t cols = t->keys - k0 < TILE ? t->keys - k0 : TILE;
        for (int64_t i = 0; i < TILE * TILE; i++) p[i] = ds[i] = 0;
        if (!FN(attention_rows_differentiate)(p, ds, x->d_o + q0 * x->ld_o, x->ld_o, x->lse + q0, x->D + q0, t, a, q0,
                                              rows, k0, cols)) continue;
        /* A key that a query does not see has no gradient, also where its value is not finite. */
        for (int64_t i = 0; i < TILE * TILE; i++) ds[i] = p[i] == 0 ? 0 : ds[i] * (real)a->scale;
        FN(attention_drop)(p, TILE, t, a, q0, rows, k0, cols);
        /* dq += scale ds k,  dk += scale ds^T q,  dv += (m p)^T do */
        struct weighted s = { .weight = ds, .step = TILE, .term_step = 1, .count = rows, .terms = cols, .A = A,
                              .finest = GRID_GRADIENT, .integer = x->k.integer + k0 * A, .grid = x->k.grid + k0,
                              .to = sum_row(to.dq, q0, to.ld_dq), .ld = to.ld_dq };
        add_weighted(&s);
        s.step = 1, s.term_step = TILE, s.count = cols, s.terms = rows, s.ld = to.ld_dkv;
        s.integer = x->q.integer + q0 * A, s.grid = x->q.grid + q0, s.to = sum_row(to.dk, k0, to.ld_dkv);
        add_weighted(&s);
        s.weight = p, s.finest = GRID_BESIDE_GRADIENT, s.to = sum_row(to.dv, k0, to.ld_dkv);
        s.integer = x->d_o_rows.integer + q0 * A, s.grid = x->d_o_rows.grid + q0;
        add_weighted(&s);
    }
}

/* A call of backward: delta, or the output that delta is computed from. */
struct backward_call { struct part p; struct tensor dO, O, delta, lse; };

/* A key/value head of a sequence, and the query heads that share the key: to.dq points to the first of these. */
static void add_group(struct gradient_sums to, const struct backward_call *c, int64_t b, int64_t kv)
{
    const struct part *p = &c->p;
    const struct attention *a = &p->a;
    const int64_t group = a->H / a->K, A = a->A, ld_o = a->H * A;
    const struct head first = FN(attention_parts_head)(p, b, kv * group);
    const struct grid_rows k = rows_on_grids(first.k, first.ld_kv, p->keys, A, GRID_BESIDE_GRADIENT);
    real *const D = attention_take(p->queries, sizeof *D);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++, to.dq += A * (int64_t)sizeof(fixed_sum)) {
        const struct head t = FN(attention_parts_head)(p, b, h);
        const real *const d_o = CONST_DATA(c->dO) + b * p->queries * ld_o + h * A;
        for (int64_t q0 = 0; q0 < p->queries; q0 += TILE)
            FN(attention_parts_delta)(D + q0, c->delta, c->dO, c->O, p, b, h, q0);
        const struct head_backward x = { .d_o = d_o, .ld_o = ld_o, .D = D,
                                         .lse = CONST_DATA(c->lse) + (b * a->H + h) * p->queries, .k = k,
                                         .q = rows_on_grids(t.q, t.ld_q, p->queries, A, GRID_BESIDE_GRADIENT),
                                         .d_o_rows = rows_on_grids(d_o, ld_o, p->queries, A, GRID_GRADIENT) };
        for (int64_t q0 = 0; q0 < p->queries; q0 += TILE) add_gradients(to, &x, &t, a, q0);
        rows_free(x.q), rows_free(x.d_o_rows);
    }
    rows_free(k), free(D);
}

/* dX [rows, A], from a column on, = the finished sums, which are kept, too, if there is room. */
static void round_sums(struct tensor dX, fixed_sum *kept, int64_t row, int64_t column, const char *sums, int64_t ld,
                       int64_t rows, int64_t A)
{
    const int64_t size = (int64_t)dtype_size(dX.dtype);
    for (int64_t n = 0; n < rows && kept; n++)
        memcpy(kept + (row + n) * tensor_cols(dX) + column, sums + n * ld * (int64_t)sizeof *kept,
               (size_t)A * sizeof *kept);
    for (int64_t n = 0; n < rows; n++)
        convert_numbers((char *)dX.data + ((row + n) * tensor_cols(dX) + column) * size, dX.dtype,
                        sums + n * ld * (int64_t)sizeof(fixed_sum), EXACT, A);
}

void FN(attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                  struct tensor QKV, struct attention a)
{
    const struct backward_call c = { FN(attention_parts_whole)(QKV, a), dO, O, tensor_none, lse };
    const struct part *p = &c.p;
    const int64_t group = a.K > 0 ? a.H / a.K : 0, S = p->queries, ld = (group + 2) * a.A;
    assert(tensor_count(dQKV) == tensor_count(QKV) && tensor_count(O) == tensor_count(dO));
    fixed_sum *const kept = unrounded_room(dQKV, 0, NULL);

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(attention_parts_many)(p->B, &a, S, S))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            /* sums [S, (group + 2) A] of the queries, the key and the value. */
            char *const sums = attention_take(S * ld, sizeof(fixed_sum)), *const dk = sum_row(sums, 1, group * a.A),
                 *const dv = sum_row(dk, 1, a.A);
            memset(sums, 0, (size_t)(S * ld) * sizeof(fixed_sum));
            add_group((struct gradient_sums){ sums, dk, dv, ld, ld }, &c, b, kv);
            round_sums(dQKV, kept, b * S, kv * group * a.A, sums, ld, S, group * a.A);
            round_sums(dQKV, kept, b * S, (a.H + kv) * a.A, dk, ld, S, a.A);
            round_sums(dQKV, kept, b * S, (a.H + a.K + kv) * a.A, dv, ld, S, a.A);
            free(sums);
        }
}

void FN(attention_part_backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor delta,
                                 struct tensor lse, struct tensor Q, struct tensor KV, struct tensor q_at,
                                 struct tensor k_at, struct attention a)
{
    const struct backward_call c = { FN(attention_parts_of)(Q, KV, q_at, k_at, a), dO, tensor_none, delta, lse };
    const struct part *p = &c.p;
    const int64_t group = a.K > 0 ? a.H / a.K : 0, ld_q = tensor_cols(dQ), ld_kv = tensor_cols(dKV);
    assert(dQ.dtype == EXACT && dKV.dtype == EXACT);

    #pragma omp parallel for collapse(2) schedule(dynamic) if (FN(attention_parts_many)(p->B, &a, p->queries, p->keys))
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            char *const dq = sum_row((char *)dQ.data, b * p->queries * ld_q + kv * group * a.A, 1),
                 *const dk = sum_row((char *)dKV.data, b * p->keys * ld_kv + ld_kv - (2 * a.K - kv) * a.A, 1);
            add_group((struct gradient_sums){ dq, dk, sum_row(dk, a.K * a.A, 1), ld_q, ld_kv }, &c, b, kv);
        }
}
