/* Attention: compared with loops in long double and with finite differences of its forward; any division of heads,
 * sequences and threads gives the same bits.
 * tier: check
 */
#include "tests/ref/test_ops.h"

enum { TILE = 64 };                     /* keys per tile in the operation: only the error bound knows */

static struct tensor QKV, O, lse, dO, dQKV;
static struct attention a;

static void setup(const struct ops *op, int64_t B, struct attention shape, double size)
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

static void run(const struct ops *op)
{
    op->attention_forward(O, lse, QKV, a);
    op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
}

/* ---- the naive one: all S x S of one head ------------------------------------------------------------------------ */

static int64_t q_at(int64_t b, int64_t s, int64_t h) { return ((b * a.S + s) * (a.H + 2 * a.K) + h) * a.A; }
static int64_t k_at(int64_t b, int64_t s, int64_t h) { return q_at(b, s, a.H + h / (a.H / a.K)); }
static int64_t v_at(int64_t b, int64_t s, int64_t h) { return q_at(b, s, a.H + a.K + h / (a.H / a.K)); }
static int64_t o_at(int64_t b, int64_t s, int64_t h) { return ((b * a.S + s) * a.H + h) * a.A; }

static num dot(struct tensor x, int64_t i, struct tensor y, int64_t j)
{
    struct sum s = { 0 };
    for (int64_t d = 0; d < a.A; d++) sum_add(&s, times(at(x, i + d), at(y, j + d)));
    return sum_end(s);
}

static num dropout_factor(int64_t b, int64_t h, int64_t query, int64_t key)
{
    if (a.drop.p == 0) return exact(1);
    const int64_t row = ((a.drop.row0 + b) * a.drop.cols + a.drop.col0 + h) * a.S + query;
    const bool keep = random_uniform(a.drop.seed, a.drop.stream, (uint64_t)(row * a.S + key)) >= a.drop.p;
    return keep ? rounded(1 / (1 - (long double)a.drop.p), 0) : exact(0);
}

/* What the running maximum costs, relative to exp(s - max): each tile of keys may shrink what came before it, by an exp
 * (two units) of a difference (half a unit of each of two maxima) and a product. */
static num shrunk(num p, num range)
{
    const long double tiles = (long double)((a.S + TILE - 1) / TILE);
    p.e += p.v * unit * (4 * tiles + 2 * fabsl(range.v));
    return p;
}

/* Row `query` of head h: scores, lse, probabilities, output. */
struct naive_row { num *s, *p, lse; };

static void naive_row(struct naive_row *r, int64_t b, int64_t h, int64_t query)
{
    num top = exact(-INFINITY), least = exact(INFINITY);
    struct sum total = { 0 };
    for (int64_t k = 0; k <= query; k++) {
        r->s[k] = times(rounded(a.scale, 0), dot(QKV, q_at(b, query, h), QKV, k_at(b, k, h)));
        top.v = fmaxl(top.v, r->s[k].v), least.v = fminl(least.v, r->s[k].v);
    }
    const num range = exact(top.v - least.v);
    for (int64_t k = 0; k <= query; k++) {
        r->p[k] = shrunk(expo(minus(r->s[k], top)), range);
        sum_add(&total, r->p[k]);
    }
    const num inverse = over(exact(1), sum_end(total));
    r->lse = plus(top, logarithm(sum_end(total)));
    for (int64_t k = 0; k <= query; k++) r->p[k] = times(r->p[k], inverse);
}

static void check_head(int64_t b, int64_t h, struct sum *dk, struct sum *dv)
{
    const int64_t S = a.S, A = a.A;
    num *s = calloc((size_t)(2 * S), sizeof *s);
    struct naive_row row = { .s = s, .p = s + S };
    assert_non_null(s);
    for (int64_t query = 0; query < S; query++) {
        struct sum o[TILE] = { 0 }, dq[TILE] = { 0 }, D = { 0 };
        naive_row(&row, b, h, query);
        expect_near("lse", lse, (b * a.H + h) * S + query, row.lse);
        for (int64_t k = 0; k <= query; k++)
            for (int64_t d = 0; d < A; d++)
                sum_add(&o[d], times(times(row.p[k], dropout_factor(b, h, query, k)), at(QKV, v_at(b, k, h) + d)));
        for (int64_t d = 0; d < A; d++) {
            const num out = sum_end(o[d]);
            expect_near("O", O, o_at(b, query, h) + d, out);
            sum_add(&D, times(at(dO, o_at(b, query, h) + d), out));
        }
        for (int64_t k = 0; k <= query; k++) {
            const num factor = dropout_factor(b, h, query, k), p = expo(minus(row.s[k], row.lse));
            const num dp = times(dot(dO, o_at(b, query, h), QKV, v_at(b, k, h)), factor);
            const num ds = times(rounded(a.scale, 0), times(p, minus(dp, sum_end(D))));
            for (int64_t d = 0; d < A; d++) {
                sum_add(&dq[d], times(ds, at(QKV, k_at(b, k, h) + d)));
                sum_add(&dk[k * A + d], times(ds, at(QKV, q_at(b, query, h) + d)));
                sum_add(&dv[k * A + d], times(times(p, factor), at(dO, o_at(b, query, h) + d)));
            }
        }
        for (int64_t d = 0; d < A; d++) expect_near("dQ", dQKV, q_at(b, query, h) + d, sum_end(dq[d]));
    }
    free(s);
}

static void check_all(int64_t B)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t kv = 0; kv < a.K; kv++) {
            struct sum *dk = calloc((size_t)(2 * a.S * a.A), sizeof *dk), *dv = dk + a.S * a.A;
            assert_non_null(dk);
            const int64_t group = a.H / a.K;
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) check_head(b, h, dk, dv);
            for (int64_t i = 0; i < a.S * a.A; i++) {
                expect_near("dK", dQKV, k_at(b, i / a.A, kv * group) + i % a.A, sum_end(dk[i]));
                expect_near("dV", dQKV, v_at(b, i / a.A, kv * group) + i % a.A, sum_end(dv[i]));
            }
            free(dk);
        }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const struct { int64_t B, S, H, K, A; double p, size; } shapes[] = {
    { 1, 1, 1, 1, 1, 0, 1 }, { 2, 3, 1, 1, 1, 0, 1 }, { 3, 7, 4, 2, 5, 0, 1 }, { 1, 64, 2, 2, 16, 0, 1 },
    { 2, 65, 3, 1, 7, 0, 1 }, { 1, 131, 2, 1, 8, 0, 1 }, { 1, 130, 1, 1, 3, 0, 8 },
    { 2, 13, 4, 2, 3, 0.4, 1 }, { 1, 129, 2, 2, 4, 0.1, 1 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_attention(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int i = 0; i < SHAPES; i++) {
            setup(op, shapes[i].B,
                  (struct attention){ .S = shapes[i].S,
                                      .H = shapes[i].H,
                                      .K = shapes[i].K,
                                      .A = shapes[i].A,
                                      .scale = 0.7,
                                      .drop = { .p = shapes[i].p, .seed = 3, .stream = 4 } },
                  shapes[i].size);
            run(op);
            check_all(shapes[i].B);
            check_guards_and_free();
        }
}

static void test_empty_shapes(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        setup(op, 0, (struct attention){ .S = 5, .H = 2, .K = 2, .A = 3, .scale = 1 }, 1);
        run(op);
        check_guards_and_free();
        setup(op, 2, (struct attention){ .S = 5, .A = 3, .scale = 1 }, 1);
        run(op);
        check_guards_and_free();
        setup(op, 2, (struct attention){ .S = 5, .K = 1, .A = 3, .scale = 1 }, 1);      /* keys that nobody asks */
        run(op);
        expect_same_bits("dQKV", dQKV, fill_with(copy_of(dQKV), 0));
        check_guards_and_free();
    }
}

static void forward(void) { ops_for(F64)->attention_forward(O, lse, QKV, a); }

static void test_gradient(void **state)
{
    (void)state;
    for (int dropped = 0; dropped < 2; dropped++) {
        setup(ops_for(F64), 2, (struct attention){ .S = 6, .H = 4, .K = 2, .A = 3, .scale = 0.6,
              .drop = { .p = 0.3 * dropped, .seed = 8, .stream = 1 } }, 1);
        run(ops_for(F64));
        expect_gradient("dQKV", copy_of(dQKV), QKV, forward, O, dO, 60);
        check_guards_and_free();
    }
}

/* Scores of thousands overflow a bare exp; the softmax becomes a choice: of the last key where they rise, of the first
 * where they fall. */
static void test_large_scores(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int sign = -1; sign <= 1; sign += 2) {
            setup(op, 1, (struct attention){ .S = 140, .H = 1, .K = 1, .A = 1, .scale = 1 }, 1);
            for (int64_t s = 0; s < a.S; s++) {
                tensor_set(QKV, 3 * s, 100);
                tensor_set(QKV, 3 * s + 1, (double)(sign * s) * 100);
            }
            run(op);
            for (int64_t s = 0; s < a.S; s++) {
                const int64_t chosen = sign > 0 ? s : 0;
                expect_near("O", O, s, at(QKV, 3 * chosen + 2));
                expect_near("lse", lse, s, exact((long double)(sign * chosen) * 10000));
                expect_near("dQ", dQKV, 3 * s, exact(0));
            }
            check_guards_and_free();
        }
}

/* Columns [from, from+count) of X. */
static struct tensor columns(struct tensor X, int64_t from, int64_t count)
{
    struct tensor piece = matrix(X.dtype, tensor_rows(X), count);
    for (int64_t n = 0; n < tensor_rows(X); n++)
        for (int64_t c = 0; c < count; c++)
            tensor_set(piece, n * count + c, tensor_get(X, n * tensor_cols(X) + from + c));
    return piece;
}

static struct tensor beside(struct tensor L, struct tensor M, struct tensor R)
{
    const struct tensor part[] = { L, M, R };
    struct tensor all = matrix(L.dtype, tensor_rows(L), tensor_cols(L) + tensor_cols(M) + tensor_cols(R));
    for (int64_t n = 0; n < tensor_rows(L); n++)
        for (int64_t p = 0, c0 = 0; p < 3; c0 += tensor_cols(part[p]), p++)
            for (int64_t c = 0; c < tensor_cols(part[p]); c++)
                tensor_set(all, n * tensor_cols(all) + c0 + c, tensor_get(part[p], n * tensor_cols(part[p]) + c));
    return all;
}

/* As two devices of a tensor-parallel layer see it: each its heads, in a fused projection of its own. */
static void test_heads_cut_in_two(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t H = 6, K = 3, A = 5, S = 77, B = 2;
        setup(op, B, (struct attention){ .S = S, .H = H, .K = K, .A = A, .scale = 0.4,
              .drop = { .p = 0.2, .seed = 1, .cols = H } }, 1);
        run(op);
        const struct attention whole = a;
        const struct tensor all = QKV, all_o = O, all_do = dO, all_dqkv = dQKV, all_lse = lse;
        for (int64_t k0 = 0, k1 = 1; k0 < K; k0 = k1, k1 = K) {         /* key heads 0 | 1, 2 */
            const int64_t h0 = 2 * k0, h1 = 2 * k1, q = (h1 - h0) * A, kv = (k1 - k0) * A;
            a = whole, a.H = h1 - h0, a.K = k1 - k0, a.drop.col0 = h0;
            QKV = beside(columns(all, h0 * A, q), columns(all, (H + k0) * A, kv), columns(all, (H + K + k0) * A, kv));
            O = matrix(t, B * S, q), lse = matrix(t, B * a.H, S), dQKV = matrix(t, B * S, q + 2 * kv);
            dO = columns(all_do, h0 * A, q);
            run(op);
            expect_same_bits("O of some heads", O, columns(all_o, h0 * A, q));
            expect_same_bits("dQKV of some heads", dQKV,
                             beside(columns(all_dqkv, h0 * A, q), columns(all_dqkv, (H + k0) * A, kv),
                                    columns(all_dqkv, (H + K + k0) * A, kv)));
            for (int64_t i = 0; i < B * a.H * S; i++)
                expect_near("lse of some heads", lse, i, at(all_lse, (i / (a.H * S) * H + h0) * S + i % (a.H * S)));
        }
        check_guards_and_free();
    }
}

/* As two data-parallel devices see it: each its sequences. */
static void test_sequences_cut_in_two(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t S = 9, width = 4 * 3;
        setup(op, 5, (struct attention){ .S = S, .H = 2, .K = 1, .A = 3, .scale = 1,
              .drop = { .p = 0.2, .seed = 1, .row0 = 2 } }, 1);
        run(op);
        const struct tensor all = QKV, all_o = O, all_dqkv = dQKV, all_do = dO;
        a.drop.row0 = 4;                                                 /* two sequences on */
        QKV = tensor_2d((char *)all.data + (size_t)(2 * S * width) * dtype_size(t), t, 3 * S, width);
        dO = tensor_2d((char *)all_do.data + (size_t)(2 * S * 6) * dtype_size(t), t, 3 * S, 6);
        O = matrix(t, 3 * S, 6), lse = matrix(t, 6, S), dQKV = matrix(t, 3 * S, width);
        run(op);
        expect_same_bits("O", O, tensor_2d((char *)all_o.data + (size_t)(2 * S * 6) * dtype_size(t), t, 3 * S, 6));
        expect_same_bits("dQKV", dQKV,
                         tensor_2d((char *)all_dqkv.data + (size_t)(2 * S * width) * dtype_size(t), t, 3 * S, width));
        check_guards_and_free();
    }
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    FOR_FORMATS(t, op)
        for (int wide = 0; wide < 2; wide++) {          /* few wide heads: products large enough for the BLAS to cut */
            setup(op, 2, wide ? (struct attention){ .S = 65, .H = 1, .K = 1, .A = 256, .scale = 0.1 }
                              : (struct attention){ .S = 150, .H = 4, .K = 2, .A = 16, .scale = 0.1 }, 1);
            omp_set_num_threads(1);
            run(op);
            const struct tensor o1 = copy_of(O), d1 = copy_of(dQKV);
            omp_set_num_threads(5);
            run(op);
            omp_set_num_threads(before);
            expect_same_bits("O with five threads", O, o1);
            expect_same_bits("dQKV with five threads", dQKV, d1);
            check_guards_and_free();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention), cmocka_unit_test(test_empty_shapes), cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(test_heads_cut_in_two),
        cmocka_unit_test(test_sequences_cut_in_two), cmocka_unit_test(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
