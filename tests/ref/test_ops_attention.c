/* Attention: compared with loops in long double and with finite differences of its forward; any division of heads,
 * sequences and threads gives the same bits.
 * tier: check
 */
#include "tests/ref/attention_naive.h"

static void run(const struct ops *op)
{
    op->attention_forward(O, lse, QKV, a);
    op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const struct { int64_t B, S, H, K, A; double p, size, cap; } shapes[] = {
    { 1, 1, 1, 1, 1, 0, 1, 0 }, { 2, 3, 1, 1, 1, 0, 1, 0 }, { 3, 7, 4, 2, 5, 0, 1, 0 }, { 1, 64, 2, 2, 16, 0, 1, 0 },
    { 2, 65, 3, 1, 7, 0, 1, 0 }, { 1, 131, 2, 1, 8, 0, 1, 0 }, { 1, 130, 1, 1, 3, 0, 8, 0 },
    { 2, 13, 4, 2, 3, 0.4, 1, 0 }, { 1, 129, 2, 2, 4, 0.1, 1, 0 }, { 2, 13, 4, 2, 3, 0.4, 2, 1.5 },
    { 1, 130, 2, 1, 5, 0, 3, 2 },
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
                                      .cap = shapes[i].cap,
                                      .drop = { .p = shapes[i].p, .seed = 3, .stream = 4 } },
                  shapes[i].size);
            run(op);
            check_all(shapes[i].B);
            check_guards_and_free();
        }
}

/* Sinks as large as scores, and far above and below them. */
static void test_sinks(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int i = 0; i < SHAPES; i++) {
            setup(op, shapes[i].B,
                  (struct attention){ .S = shapes[i].S, .H = shapes[i].H, .K = shapes[i].K, .A = shapes[i].A,
                                      .scale = 0.7, .window = i % 2 ? 3 : 0,
                                      .drop = { .p = shapes[i].p, .seed = 3, .stream = 4 } }, shapes[i].size);
            setup_sinks();
            if (i % 3 == 1) tensor_set(a.sinks, 0, i % 2 ? 20 : -20);
            run(op);
            op->attention_sinks_backward(dsinks, dO, O, lse, a);
            check_all(shapes[i].B);
            check_guards_and_free();
        }
}

/* Numbers of queries and keys' gradients that are not 0. */
static int64_t score_gradients_left(void)
{
    int64_t left = 0;
    const int64_t width = tensor_cols(dQKV);
    for (int64_t i = 0; i < tensor_count(dQKV); i++)
        left += i % width < (a.H + a.K) * a.A && tensor_get(dQKV, i) != 0;
    return left;
}

/* The softmax over one key is 1: gradients of queries and keys are 0, not the rounding of two equal sums, and those of
 * values are as ever.  A prefix or a sink is one more key. */
static void test_one_key(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int i = 0; i < 4; i++) {
            setup(op, 3, (struct attention){ .S = i % 2 ? 67 : 1, .H = 4, .K = 2, .A = 23, .scale = 0.7,
                                             .window = i % 2, .cap = i / 2 * 1.5,
                                             .drop = { .p = i / 2 * 0.3, .seed = 3, .stream = 4 } }, 3);
            run(op);
            assert_int_equal(score_gradients_left(), 0);
            check_all(3);
            a.more = true;
            for (int64_t n = 0; n < tensor_count(lse); n++) tensor_set(lse, n, tensor_get(lse, n) + 0.5);
            for (int64_t n = 0; n < tensor_count(O); n++) tensor_set(O, n, tensor_get(O, n) / 2);
            op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
            assert_true(score_gradients_left() > 0);
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
    for (int i = 0; i < 4; i++) {
        setup(ops_for(F64), 2, (struct attention){ .S = 6, .H = 4, .K = 2, .A = 3, .scale = 0.6, .cap = i % 2 ? 0.8 : 0,
              .drop = { .p = i % 2 ? 0.3 : 0, .seed = 8, .stream = 1 } }, 1);
        if (i > 1) setup_sinks();
        run(ops_for(F64));
        expect_gradient("dQKV", copy_of(dQKV), QKV, forward, O, dO, 60);
        if (i > 1) {
            fill_with(dsinks, 0), forward();
            ops_for(F64)->attention_sinks_backward(dsinks, dO, O, lse, a);
            expect_gradient("dsinks", copy_of(dsinks), a.sinks, forward, O, dO, 60);
        }
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
        cmocka_unit_test(test_attention), cmocka_unit_test(test_sinks), cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_empty_shapes), cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(test_heads_cut_in_two),
        cmocka_unit_test(test_sequences_cut_in_two), cmocka_unit_test(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
