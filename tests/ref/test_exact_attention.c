/* Attention whose sums are exact (ref/exact/attention.c): held to integers of 128 bits; the same bits for any cut of
 * queries and keys in any order, for a prefix of a sequence, a document of a pack and a sequence of a batch; and how
 * far it is from attention in fp64.
 * tier: check
 */
#include "ref/numeric/convert.h"
#include "ref/numeric/fixed_sum.h"
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The rule that is tested: every test runs with each. */
static enum exact_rule rule_now;

/* ---- a call ------------------------------------------------------------------------------------------------------ */

struct call { struct attention a; int64_t B; struct tensor QKV, dO, O, lse, dQKV; };

static struct tensor room(enum dtype dtype, int64_t rows, int64_t cols)
{
    const struct tensor t = tensor_2d(calloc((size_t)(rows * cols + 1), dtype_size(dtype)), dtype, rows, cols);
    assert_non_null(t.data);
    return t;
}

/* Numbers around 0 whose sizes differ by 2^range. */
static struct tensor drawn(enum dtype dtype, int64_t rows, int64_t cols, uint64_t stream, double range)
{
    const struct tensor t = room(dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        tensor_set(t, i, (random_uniform(7, stream, (uint64_t)i) - 0.5) * 4
                             * exp2(range * (random_uniform(7, stream + 1, (uint64_t)i) - 0.5)));
    return t;
}

static struct call call_of(enum dtype dtype, struct attention a, int64_t B, uint64_t stream)
{
    const int64_t N = B * a.S;
    return (struct call){ .a = a, .B = B, .QKV = drawn(dtype, N, (a.H + 2 * a.K) * a.A, stream, 4),
                          .dO = drawn(dtype, N, a.H * a.A, stream + 2, 12), .O = room(dtype, N, a.H * a.A),
                          .lse = room(F32, B * a.H, a.S), .dQKV = room(dtype, N, (a.H + 2 * a.K) * a.A) };
}

static void call_run(const struct ops *op, const struct call *c)
{
    op->attention_forward(c->O, c->lse, c->QKV, c->a);
    op->attention_backward_input(c->dQKV, c->dO, c->O, c->lse, c->QKV, c->a);
}

static void call_free(struct call *c)
{
    free(c->QKV.data), free(c->dO.data), free(c->O.data), free(c->lse.data), free(c->dQKV.data);
}

static void must_equal(struct tensor a, struct tensor b, const char *what)
{
    assert_int_equal(tensor_count(a), tensor_count(b));
    for (int64_t i = 0; i < tensor_count(a); i++)
        if (memcmp((char *)a.data + i * (int64_t)dtype_size(a.dtype), (char *)b.data + i * (int64_t)dtype_size(b.dtype),
                   dtype_size(a.dtype)) != 0)
            fail_msg("%s: element %d of %d is %.9g, not %.9g", what, (int)i, (int)tensor_count(a), tensor_get(a, i),
                     tensor_get(b, i));
}

/* ---- the rule, written again: docs/checking/exact.md ------------------------------------------------------------- */

/* Each product and each sum rounds to fp32: volatile keeps the compiler from fusing them. */
static float rule_exp(float x)
{
    const volatile float R = 0x1.8p23f, x0 = x < -104 ? -104 : x > 89 ? 89 : x;
    static const float divisor[] = { 5040, 720, 120, 24, 6, 2 };
    volatile float k = x0 * 0x1.71547652b82fep+0f, high, low, r, p = 1 / 40320.0f, t;
    k = k + R, k = k - R;
    t = k * 0x1.63p-1f, high = x0 - t, low = k * -0x1.bd0106p-13f, r = high - low;
    for (int i = 0; i < 6; i++) t = p * r, p = t + 1 / divisor[i];
    t = r * r, t = t * p, t = t - low, t = high + t, t = 1 + t;
    return ldexpf(t, (int)k);
}

static float rule_dot(const float *x, const float *y, int64_t n)
{
    volatile float sum = 0, term;
    volatile double wide = 0;
    /* Each product of two fp32 numbers is an fp64 number. */
    for (int64_t i = 0; i < n; i++) wide = wide + (double)x[i] * (double)y[i];
    if (rule_now == SUMS_EXACT2) return (float)wide;
    for (int64_t i = 0; i < n; i++) term = x[i] * y[i], sum = sum + term;
    return sum;
}

/* The sum of products in fp32, 16 partial sums. */
static float rule_delta(const float *x, const float *y, int64_t n)
{
    volatile float lane[16] = { 0 }, term;
    for (int64_t i = 0; i < n; i++) term = x[i] * y[i], lane[i % 16] = lane[i % 16] + term;
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

static int rule_grid(const float *row, int64_t n, int finest)
{
    double top = 0;
    int e;
    for (int64_t i = 0; i < n; i++) top = fabs((double)row[i]) > top ? fabs((double)row[i]) : top;
    if (top == 0) return finest;
    frexp(top, &e);
    e -= rule_now == SUMS_EXACT2 ? 28 : 22;
    return e > finest ? e : finest;
}

/* A weight, a multiple of 2^grid, times number i of a row. */
static fixed_sum rule_term(float weight, int grid, const float *row, int64_t i, int64_t n, int finest)
{
    const int g = rule_grid(row, n, finest);
    const fixed_sum w = (fixed_sum)nearbyint(ldexp((double)weight, -grid)),
                    x = (fixed_sum)nearbyint(ldexp((double)row[i], -g));
    return w * x * ((fixed_sum)1 << (grid + g + 100));
}

/* A head of a sequence: scores, tops, probabilities and gradients of scores, [S, S] each. */
struct rule { float *s, *e, *p, *ds, *top; fixed_sum *total; };

static const float *row_of(struct tensor t, int64_t n, int64_t column)
{
    return (const float *)t.data + n * tensor_cols(t) + column;
}

static struct rule rule_head(const struct call *c, int64_t b, int64_t h)
{
    const struct attention *a = &c->a;
    const int64_t S = a->S, A = a->A, kv = h / (a->H / a->K), q0 = h * A, k0 = (a->H + kv) * A, v0 = k0 + a->K * A;
    struct rule r = { calloc((size_t)(S * S), 4), calloc((size_t)(S * S), 4), calloc((size_t)(S * S), 4),
                      calloc((size_t)(S * S), 4), calloc((size_t)S, 4), calloc((size_t)S, 16) };
    for (int64_t i = 0; i < S; i++) {
        const float *const q = row_of(c->QKV, b * S + i, q0), *const d_o = row_of(c->dO, b * S + i, h * A);
        const float delta = rule_delta(d_o, row_of(c->O, b * S + i, h * A), A),
                    lse = ((const float *)c->lse.data)[(b * a->H + h) * S + i];
        r.top[i] = -INFINITY;
        for (int64_t j = 0; j <= i; j++) {
            volatile float score = rule_dot(q, row_of(c->QKV, b * S + j, k0), A);
            score = (float)a->scale * score;
            r.s[i * S + j] = score, r.top[i] = score > r.top[i] ? score : r.top[i];
        }
        for (int64_t j = 0; j <= i; j++) {
            volatile float ds = rule_dot(d_o, row_of(c->QKV, b * S + j, v0), A);
            r.e[i * S + j] = rule_exp(r.s[i * S + j] - r.top[i]), r.p[i * S + j] = rule_exp(r.s[i * S + j] - lse);
            ds = ds - delta, ds = ds * r.p[i * S + j], ds = ds * (float)a->scale;
            r.ds[i * S + j] = i == 0 ? 0 : ds;                  /* the first query sees one key */
            r.total[i] += (fixed_sum)nearbyint(ldexp((double)r.e[i * S + j], 36)) << 64;
        }
    }
    return r;
}

static void rule_free(struct rule *r) { free(r->s), free(r->e), free(r->p), free(r->ds), free(r->top), free(r->total); }

static void rule_holds(struct tensor t, int64_t row, int64_t column, fixed_sum want, const char *what)
{
    const float have = row_of(t, row, column)[0], number = (float)fixed_to_odd(want);
    if (have != number) fail_msg("%s[%d,%d] is %.9g, by the rule %.9g", what, (int)row, (int)column, have, number);
}

static void check_head(const struct call *c, const struct rule r[], int64_t b, int64_t kv)
{
    const struct attention *a = &c->a;
    const int64_t S = a->S, A = a->A, group = a->H / a->K, k0 = (a->H + kv) * A, v0 = k0 + a->K * A;
    for (int64_t i = 0; i < S; i++)
        for (int64_t x = 0; x < A; x++) {
            fixed_sum dk = 0, dv = 0;
            for (int64_t g = 0; g < group; g++) {
                const int64_t h = kv * group + g;
                fixed_sum o = 0, dq = 0;
                for (int64_t j = 0; j <= i; j++) {
                    o += rule_term(r[g].e[i * S + j], -36, row_of(c->QKV, b * S + j, v0), x, A, -64);
                    dq += rule_term(r[g].ds[i * S + j], -64, row_of(c->QKV, b * S + j, k0), x, A, -36);
                }
                for (int64_t j = i; j < S; j++) {
                    dk += rule_term(r[g].ds[j * S + i], -64, row_of(c->QKV, b * S + j, h * A), x, A, -36);
                    dv += rule_term(r[g].p[j * S + i], -36, row_of(c->dO, b * S + j, h * A), x, A, -64);
                }
                const float out = (float)(fixed_to_double(o) / fixed_to_double(r[g].total[i]));
                if (row_of(c->O, b * S + i, h * A + x)[0] != out) fail_msg("O[%d] is not the rule's", (int)i);
                rule_holds(c->dQKV, b * S + i, h * A + x, dq, "dQ");
            }
            rule_holds(c->dQKV, b * S + i, k0 + x, dk, "dK"), rule_holds(c->dQKV, b * S + i, v0 + x, dv, "dV");
        }
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static const struct attention small = { .S = 71, .H = 4, .K = 2, .A = 5, .scale = 0.7 };

static void must_be_the_rule(struct attention a, int64_t B)
{
    struct call c = call_of(F32, a, B, 1);
    call_run(ops_exact(F32, rule_now), &c);
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            struct rule r[2] = { rule_head(&c, b, 2 * kv), rule_head(&c, b, 2 * kv + 1) };
            check_head(&c, r, b, kv);
            rule_free(&r[0]), rule_free(&r[1]);
        }
    call_free(&c);
}

/* A head of 600 numbers has more terms in a score than are laid out at once. */
static void test_as_integers_of_128_bits(void **state)
{
    const struct attention wide = { .S = 19, .H = 2, .K = 1, .A = 600, .scale = 0.041 };
    (void)state;
    must_be_the_rule(small, 2), must_be_the_rule(wide, 1);
}

/* Some rows of each sequence, by their positions. */
struct piece { int32_t at[256]; int64_t n; };

static struct tensor piece_at(struct piece *p) { return tensor_1d(p->at, I32, p->n); }

static void copy_row(struct tensor to, int64_t row, struct tensor from, int64_t source)
{
    const int64_t bytes = tensor_cols(to) * (int64_t)dtype_size(to.dtype);
    memcpy((char *)to.data + row * bytes, (char *)from.data + source * bytes, (size_t)bytes);
}

static struct tensor piece_rows(struct tensor whole, const struct piece *p, int64_t B, int64_t S)
{
    const struct tensor t = room(whole.dtype, B * p->n, tensor_cols(whole));
    for (int64_t i = 0; i < B * p->n; i++) copy_row(t, i, whole, i / p->n * S + p->at[i % p->n]);
    return t;
}

/* Tokens go to P pieces at random. */
static void cut(struct piece piece[], int P, int64_t S, uint64_t stream)
{
    for (int p = 0; p < P; p++) piece[p].n = 0;
    for (int64_t s = 0; s < S; s++) {
        struct piece *const p = &piece[(int)((double)P * random_uniform(8, stream, (uint64_t)s))];
        p->at[p->n++] = (int32_t)s;
    }
}

/* Forward and backward of one piece of the queries with the keys of each, from the last piece to the first. */
static void run_piece(const struct ops *op, const struct call *c, struct piece piece[], int P, int of,
                      const struct tensor part[], const struct tensor sums[])
{
    struct piece *const own = &piece[of];
    const struct attention a = c->a;
    const int64_t rows = c->B * own->n, heads = c->B * a.H, width = tensor_cols(c->QKV);
    if (own->n == 0) return;
    const struct tensor O = room(EXACT, rows, a.H * a.A), total = room(EXACT, heads, own->n),
                        top = room(F32, heads, own->n), lse = room(F32, heads, own->n),
                        delta = room(F32, heads, own->n),
                        Y = room(op->dtype, rows, a.H * a.A), dO = piece_rows(c->dO, own, c->B, a.S),
                        wanted = piece_rows(c->O, own, c->B, a.S);
    for (int k = P - 1; k >= 0; k--)
        op->attention_part_top(top, part[of], part[k], a.H * a.A, piece_at(own), piece_at(&piece[k]), a, k < P - 1);
    for (int k = P - 1; k >= 0; k--) {
        struct attention once = a;
        if (k != P / 2) once.sinks = tensor_none;
        op->attention_part_sums(O, total, top, part[of], part[k], piece_at(own), piece_at(&piece[k]), once);
    }
    op->attention_part_finish(Y, lse, O, total, top, a);
    must_equal(Y, wanted, "O");
    op->attention_delta(delta, dO, Y, a);
    for (int k = P - 1; k >= 0; k--)
        op->attention_part_backward(sums[of], sums[k], dO, delta, lse, part[of], part[k], piece_at(own),
                                    piece_at(&piece[k]), a);
    assert_int_equal(tensor_cols(sums[of]), width);
    free(O.data), free(total.data), free(top.data), free(lse.data), free(delta.data), free(Y.data), free(dO.data);
    free(wanted.data);
}

enum { PIECES = 5 };

static void must_not_depend_on_the_cut(enum dtype dtype, struct attention a, int64_t B)
{
    const struct ops *op = ops_exact(dtype, rule_now);
    struct call c = call_of(dtype, a, B, 31);
    call_run(op, &c);
    for (int P = 1; P <= PIECES; P++) {
        struct piece piece[PIECES];
        struct tensor part[PIECES], sums[PIECES];
        cut(piece, P, a.S, (uint64_t)P);
        for (int k = 0; k < P; k++) {
            part[k] = piece_rows(c.QKV, &piece[k], B, a.S);
            sums[k] = room(EXACT, tensor_rows(part[k]), tensor_cols(part[k]));
        }
        for (int k = 0; k < P; k++) run_piece(op, &c, piece, P, k, part, sums);
        for (int k = 0; k < P; k++) {
            const struct tensor got = room(dtype, tensor_rows(part[k]), tensor_cols(part[k])),
                                wanted = piece_rows(c.dQKV, &piece[k], B, a.S);
            tensor_convert(got, sums[k]);
            must_equal(got, wanted, "dQKV");
            free(got.data), free(wanted.data), free(part[k].data), free(sums[k].data);
        }
    }
    call_free(&c);
}

/* Each token sees its document of 9 tokens, up to itself; or a few first keys and the last ones. */
static struct tensor mask_of(int64_t S, int64_t ranges)
{
    const struct tensor m = room(I32, S, 2 * ranges);
    for (int64_t q = 0; q < S; q++) {
        int32_t *const at = (int32_t *)m.data + 2 * ranges * q;
        at[0] = ranges == 1 ? (int32_t)(q / 9 * 9) : 0, at[1] = ranges == 1 || q < 3 ? (int32_t)q + 1 : 3;
        if (ranges == 2) at[2] = q < 20 ? 3 : (int32_t)q - 17, at[3] = q < 3 ? 3 : (int32_t)q + 1;
    }
    return m;
}

static void test_any_cut_of_queries_and_keys(void **state)
{
    struct attention a = small;
    float sinks[] = { 0.5f, -3, 2, 40 };
    (void)state;
    must_not_depend_on_the_cut(F32, a, 2);
    must_not_depend_on_the_cut(BF16, a, 1), must_not_depend_on_the_cut(F16, a, 1);
    a.S = 140, a.A = 70, a.scale = 0.1, a.window = 33;
    must_not_depend_on_the_cut(F32, a, 1);
    a = small, a.cap = 3, a.drop = (struct dropout){ .p = 0.3, .seed = 3, .cols = small.H };
    must_not_depend_on_the_cut(F32, a, 2);
    a = small, a.sinks = tensor_1d(sinks, F32, 4);
    must_not_depend_on_the_cut(F32, a, 2);
    for (int64_t ranges = 1; ranges <= 2; ranges++) {
        a = small, a.mask = mask_of(a.S, ranges);
        must_not_depend_on_the_cut(F32, a, 2);
        free(a.mask.data);
    }
}

/* Rows of a tensor, from one on. */
static struct tensor rows_from(struct tensor t, int64_t first, int64_t rows) { return tensor_rows_of(t, first, rows); }

static void test_a_prefix_has_its_bits(void **state)
{
    const struct ops *op = ops_exact(F32, rule_now);
    struct attention a = { .S = 150, .H = 2, .K = 1, .A = 8, .scale = 0.35 };
    struct call whole = call_of(F32, a, 1, 51);
    (void)state;
    op->attention_forward(whole.O, whole.lse, whole.QKV, a);
    for (int64_t n = 1; n <= a.S; n += 1 + n / 3) {
        struct attention part = a;
        part.S = n;
        const struct tensor O = room(F32, n, a.H * a.A), lse = room(F32, a.H, n);
        op->attention_forward(O, lse, rows_from(whole.QKV, 0, n), part);
        must_equal(O, rows_from(whole.O, 0, n), "a prefix");
        free(O.data), free(lse.data);
    }
    call_free(&whole);
}

/* A document of 9 tokens alone, in a pack, and the pack alone and in a batch: forward and backward. */
static void test_alone_as_in_a_pack(void **state)
{
    const struct ops *op = ops_exact(F32, rule_now);
    struct attention a = small, one = small;
    (void)state;
    a.mask = mask_of(a.S, 1), one.S = 9;
    struct call pack = call_of(F32, a, 3, 61);
    call_run(op, &pack);
    for (int64_t first = 0; first + one.S <= 3 * a.S; first += first % a.S + 2 * one.S <= a.S ? one.S
         : a.S - first % a.S) {
        struct call c = call_of(F32, one, 1, 1);
        memcpy(c.QKV.data, rows_from(pack.QKV, first, one.S).data, tensor_bytes(c.QKV));
        memcpy(c.dO.data, rows_from(pack.dO, first, one.S).data, tensor_bytes(c.dO));
        call_run(op, &c);
        must_equal(c.O, rows_from(pack.O, first, one.S), "O of a document");
        must_equal(c.dQKV, rows_from(pack.dQKV, first, one.S), "dQKV of a document");
        call_free(&c);
    }
    free(a.mask.data), call_free(&pack);
}

/* Ordinary operations give the result of all keys, too, from sums over three pieces of the keys. */
static void test_ordinary_sums(void **state)
{
    const struct ops *op = ops_for(F64);
    struct attention a = small;
    double sinks[] = { 0.5, -3, 2, 4 };
    a.sinks = tensor_1d(sinks, F64, 4);
    struct call c = call_of(F64, a, 2, 91);
    struct piece piece[3], all = { .n = a.S };
    const int64_t N = c.B * a.S, heads = c.B * a.H;
    const struct tensor O = room(F64, N, a.H * a.A), total = room(F64, heads, a.S), top = room(F64, heads, a.S),
                        Y = room(F64, N, a.H * a.A), lse = room(F64, heads, a.S);
    (void)state;
    free(c.lse.data), c.lse = room(F64, heads, a.S);
    op->attention_forward(c.O, c.lse, c.QKV, a);
    cut(piece, 3, a.S, 5);
    for (int64_t s = 0; s < a.S; s++) all.at[s] = (int32_t)s;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < 3; k++) {
            const struct tensor part = piece_rows(c.QKV, &piece[k], c.B, a.S);
            struct attention once = a;
            if (k != 1) once.sinks = tensor_none;
            if (pass == 0)
                op->attention_part_top(top, c.QKV, part, a.H * a.A, piece_at(&all), piece_at(&piece[k]), once, k > 0);
            else
                op->attention_part_sums(O, total, top, c.QKV, part, piece_at(&all), piece_at(&piece[k]), once);
            free(part.data);
        }
    op->attention_part_finish(Y, lse, O, total, top, a);
    for (int64_t i = 0; i < tensor_count(Y); i++)
        if (!(fabs(tensor_get(Y, i) - tensor_get(c.O, i)) < 1e-12)) fail_msg("O[%d] in parts is another", (int)i);
    for (int64_t i = 0; i < tensor_count(lse); i++)
        if (!(fabs(tensor_get(lse, i) - tensor_get(c.lse, i)) < 1e-12)) fail_msg("lse[%d] in parts is another", (int)i);
    free(O.data), free(total.data), free(top.data), free(Y.data), free(lse.data), call_free(&c);
}

/* A value that is none spoils the queries that see it, and no other. */
static void test_numbers_that_are_none(void **state)
{
    struct attention a = small;
    a.scale = 0.01;                             /* so that no weight rounds to 0 */
    struct call c = call_of(F32, a, 1, 71);
    const int64_t at = 40, v0 = (small.H + small.K) * small.A;
    (void)state;
    ((float *)c.QKV.data)[at * tensor_cols(c.QKV) + v0] = INFINITY;
    call_run(ops_exact(F32, rule_now), &c);
    for (int64_t n = 0; n < small.S; n++)
        for (int64_t x = 0; x < small.H * small.A; x++)
            assert_true((isnan(row_of(c.O, n, x)[0]) != 0) == (n >= at && x < small.H / small.K * small.A));
    for (int64_t n = 0; n < at; n++)
        for (int64_t x = 0; x < small.H * small.A; x++) assert_false(isnan(row_of(c.dQKV, n, x)[0]));
    call_free(&c);
}

/* Norm over norm against fp64: at most five times the error of fp32, with two slices at most as much. */
static void test_error(void **state)
{
    const struct attention a = { .S = 400, .H = 2, .K = 1, .A = 16, .scale = 0.25 };
    struct call c[3] = { call_of(F32, a, 1, 81), call_of(F32, a, 1, 81), call_of(F64, a, 1, 81) };
    double error[2][2] = { { 0 } };
    const double most = rule_now == SUMS_EXACT2 ? 1 : 5;
    (void)state;
    for (int64_t i = 0; i < tensor_count(c[0].QKV); i++) tensor_set(c[2].QKV, i, tensor_get(c[0].QKV, i));
    for (int64_t i = 0; i < tensor_count(c[0].dO); i++) tensor_set(c[2].dO, i, tensor_get(c[0].dO, i));
    free(c[2].lse.data), c[2].lse = room(F64, a.H, a.S);
    call_run(ops_exact(F32, rule_now), &c[0]), call_run(ops_for(F32), &c[1]), call_run(ops_for(F64), &c[2]);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < tensor_count(c[0].O); i++)
            error[0][k] += pow(tensor_get(c[k].O, i) - tensor_get(c[2].O, i), 2);
        for (int64_t i = 0; i < tensor_count(c[0].dQKV); i++)
            error[1][k] += pow(tensor_get(c[k].dQKV, i) - tensor_get(c[2].dQKV, i), 2);
    }
    for (int i = 0; i < 2; i++)
        if (!(error[i][0] <= most * most * error[i][1]))
            fail_msg("%s: %g times the error of fp32", i == 0 ? "O" : "dQKV", sqrt(error[i][0] / error[i][1]));
    for (int k = 0; k < 3; k++) call_free(&c[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_integers_of_128_bits), cmocka_unit_test(test_any_cut_of_queries_and_keys),
        cmocka_unit_test(test_a_prefix_has_its_bits), cmocka_unit_test(test_alone_as_in_a_pack),
        cmocka_unit_test(test_ordinary_sums), cmocka_unit_test(test_numbers_that_are_none),
        cmocka_unit_test(test_error),
    };
    int failed = 0;
    for (rule_now = SUMS_EXACT; rule_now < EXACT_RULES; rule_now++)
        failed += cmocka_run_group_tests_name(exact_rule_names[rule_now], tests, NULL, NULL);
    return failed;
}
