/* The operations of bf16 and fp16: each result must equal, bit for bit, the result of the fp32 operation on the widened
 * operands, rounded once; and agree with PyTorch's bf16 result within one step of bf16.
 * tier: check
 *
 * The test widens operands and rounds results itself, one element at a time.
 */
#include "ref/io/safetensors.h"
#include "tests/ref/test_ops.h"
#include <omp.h>

static const enum dtype narrow_formats[] = { BF16, F16 };
#define FOR_NARROW(t, op)                                                                       \
    for (int f_ = 0; f_ < 2; f_++)                                                              \
        for (enum dtype t = narrow_formats[f_], *once_ = &t; once_; once_ = NULL)               \
            for (const struct ops *op = ops_for(t); op; op = NULL)

static const struct ops *fp32;

/* An fp32 tensor of the same numbers. */
static struct tensor widened(struct tensor X)
{
    if (!tensor_present(X)) return X;
    struct tensor W = X.ndim == 1 ? vector(F32, X.dim[0]) : matrix(F32, tensor_rows(X), tensor_cols(X));
    for (int64_t i = 0; i < tensor_count(X); i++) tensor_set(W, i, tensor_get(X, i));
    return W;
}

static void expect_stored(const char *name, struct tensor got, struct tensor fp32_result)
{
    struct tensor want =
        got.ndim == 1 ? vector(got.dtype, got.dim[0]) : matrix(got.dtype, tensor_rows(got), tensor_cols(got));
    for (int64_t i = 0; i < tensor_count(want); i++) tensor_set(want, i, tensor_get(fp32_result, i));
    expect_same_bits(name, got, want);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void table_is_whole(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        assert_int_equal(op->dtype, t);
        for (size_t at = offsetof(struct ops, embedding_forward); at < sizeof *op; at += sizeof(void (*)(void))) {
            void (*function)(void);
            memcpy(&function, (const char *)op + at, sizeof function);
            if (function == NULL)
                fail_msg("%s: operation number %zu of struct ops is missing", dtype_name(t),
                         (at - offsetof(struct ops, embedding_forward)) / sizeof function);
        }
    }
    assert_null(ops_for(I32));
    assert_null(ops_for(DTYPE_COUNT));
}

/* ---- each operation, whatever the format of the weights' gradients ----------------------------------------------- */

static void linear(void **state)
{
    (void)state;
    FOR_NARROW(t, op)
        for (int kind = 0; kind < 4; kind++) {
            const int64_t N = 21, I = 67, O = 33;
            const enum dtype g = kind % 2 ? F32 : t;
            const bool bias = kind < 2;
            CASE("linear %s, gradients %s%s", dtype_name(t), dtype_name(g), bias ? "" : ", no bias");
            const struct tensor X = fill(matrix(t, N, I), 1, "x"), W = fill(matrix(t, O, I), 1, "w"),
                                dY = fill(matrix(t, N, O), 1, "dy");
            const struct tensor b = bias ? fill(vector(t, O), 1, "b") : tensor_none, Y = matrix(t, N, O),
                                dX = matrix(t, N, I);
            const struct tensor dW = fill(matrix(g, O, I), 1, "dw"),
                                db = bias ? fill(vector(g, O), 1, "db") : tensor_none;
            const struct tensor y = matrix(F32, N, O), dx = matrix(F32, N, I), dw = widened(dW), d_b = widened(db);
            fp32->linear_forward(y, widened(X), widened(W), widened(b));
            fp32->linear_backward_input(dx, widened(dY), widened(W));
            fp32->linear_backward_weight(dw, d_b, widened(dY), widened(X));
            op->linear_forward(Y, X, W, b);
            op->linear_backward_input(dX, dY, W);
            op->linear_backward_weight(dW, db, dY, X);
            expect_stored("Y", Y, y), expect_stored("dX", dX, dx), expect_stored("dW", dW, dw);
            if (bias) expect_stored("db", db, d_b);
            check_guards_and_free();
        }
}

/* Few rows of a large matrix, which is not copied: its rows do not fill the last tile, nor its columns the last lanes.
 * The bits are those of the copied matrix, with one thread as with three. */
static void linear_few_rows(void **state)
{
    (void)state;
    const int64_t N = 6, I = 515, O = 513;
    const int before = omp_get_max_threads();
    FOR_NARROW(t, op) {
        CASE("linear %s, few rows of a large matrix", dtype_name(t));
        const struct tensor X = fill(matrix(t, N, I), 1, "x"), W = fill(matrix(t, O, I), 1, "w"),
                            b = fill(vector(t, O), 1, "b"), none = tensor_none;
        const struct tensor x = widened(X), w = widened(W), y = matrix(F32, N, O);
        const struct tensor Y = matrix(t, N, O), more = fill(matrix(t, N, O), 1, "y"), y_more = widened(more);
        fp32->linear_forward(y, x, w, widened(b)), fp32->linear_forward_add(y_more, x, w);
        for (int threads = 1; threads <= 3; threads += 2) {
            omp_set_num_threads(threads);
            op->linear_forward(Y, X, W, b), expect_stored("Y", Y, y);
            op->linear_forward_part(Y, X, none, W, none, b), expect_stored("Y by parts", Y, y);
            op->linear_forward_columns(Y, 0, X, W, b), expect_stored("Y by columns", Y, y);
        }
        op->linear_forward_add(more, X, W), expect_stored("Y added to", more, y_more);
        omp_set_num_threads(before);
        check_guards_and_free();
    }
}

/* Of the whole numbers here every sum is exact, in fp32 and as it is stored:
 * ranges of outputs have the bits of all at once. */
static void linear_columns(void **state)
{
    (void)state;
    FOR_NARROW(t, op)
        for (int kind = 0; kind < 2; kind++) {
            const int64_t N = 11, I = 6, O = 9, cut = 4;
            const enum dtype g = kind ? F32 : t;
            CASE("linear %s in columns, gradients %s", dtype_name(t), dtype_name(g));
            const struct tensor X = matrix(t, N, I), W = matrix(t, O, I), b = fill_with(vector(t, O), 1),
                                dY = matrix(t, N, O);
            for (int64_t i = 0; i < N * I; i++) tensor_set(X, i, (double)(i % 3 - 1));
            for (int64_t i = 0; i < O * I; i++) tensor_set(W, i, (double)(i % 5 - 2));
            for (int64_t i = 0; i < N * O; i++) tensor_set(dY, i, (double)(i % 4 - 2));
            const struct tensor Y = fill_with(matrix(t, N, O), 3), dX = fill_with(matrix(t, N, I), 3),
                                dW = fill_with(matrix(g, O, I), 1);
            const struct tensor y = matrix(t, N, O), dx = matrix(t, N, I), dw = fill_with(matrix(g, O, I), 1);
            op->linear_forward(y, X, W, b);
            op->linear_backward_input(dx, dY, W);
            op->linear_backward_weight(dw, tensor_none, dY, X);
            for (int i = 0; i < 2; i++) {
                const int64_t first = i * cut, n = i ? O - cut : cut;
                const struct tensor rows = tensor_2d((uint16_t *)W.data + first * I, t, n, I),
                                    bias = tensor_1d((uint16_t *)b.data + first, t, n);
                op->linear_forward_columns(Y, first, X, rows, bias);
                op->linear_backward_input_columns(dX, dY, first, rows, i > 0);
                op->linear_backward_weight_columns(
                    tensor_2d((char *)dW.data + (size_t)(first * I) * dtype_size(g), g, n, I), dY, first, X);
            }
            expect_same_bits("Y", Y, y), expect_same_bits("dX", dX, dx), expect_same_bits("dW", dW, dw);
            check_guards_and_free();
        }
}

static void layernorm(void **state)
{
    (void)state;
    FOR_NARROW(t, op)
        for (int kind = 0; kind < 2; kind++) {
            const int64_t N = 19, D = 131;
            const enum dtype g = kind ? F32 : t;
            CASE("layernorm %s, gradients %s", dtype_name(t), dtype_name(g));
            const struct tensor X = fill(matrix(t, N, D), 1, "x"), w = fill(vector(t, D), 1, "w"),
                                b = fill(vector(t, D), 1, "b");
            const struct tensor dY = fill(matrix(t, N, D), 1, "dy"), Y = matrix(t, N, D), dX = matrix(t, N, D);
            const struct tensor mean = vector(F32, N), rstd = vector(F32, N), m = vector(F32, N), r = vector(F32, N);
            const struct tensor dw = fill(vector(g, D), 1, "dw"), db = fill(vector(g, D), 1, "db"), d_w = widened(dw),
                                d_b = widened(db);
            const struct tensor y = matrix(F32, N, D), dx = matrix(F32, N, D);
            fp32->layernorm_forward(y, m, r, widened(X), widened(w), 1, widened(b), 1e-5);
            fp32->layernorm_backward_input(dx, widened(dY), widened(X), widened(w), 1, m, r);
            fp32->layernorm_backward_weight(d_w, d_b, widened(dY), widened(X), m, r);
            op->layernorm_forward(Y, mean, rstd, X, w, 1, b, 1e-5);
            op->layernorm_backward_input(dX, dY, X, w, 1, mean, rstd);
            op->layernorm_backward_weight(dw, db, dY, X, mean, rstd);
            expect_same_bits("mean", mean, m), expect_same_bits("rstd", rstd, r);
            expect_stored("Y", Y, y), expect_stored("dX", dX, dx), expect_stored("dw", dw, d_w),
                expect_stored("db", db, d_b);
            check_guards_and_free();
        }
}

static void attention(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t B = 2, S = 70, H = 4, K = 2, A = 5, N = B * S;
        const struct tensor sinks = fill(vector(t, H), 2, "sinks");
        const struct attention a = {
            .S = S, .H = H, .K = K, .A = A, .scale = 0.7, .drop = { .p = 0.2, .seed = 1, .stream = 2, .cols = H },
            .sinks = sinks
        };
        struct attention wide = a;
        wide.sinks = widened(sinks);
        CASE("attention %s", dtype_name(t));
        const struct tensor QKV = fill(matrix(t, N, (H + 2 * K) * A), 2, "qkv"),
                            dO = fill(matrix(t, N, H * A), 1, "do");
        const struct tensor O = matrix(t, N, H * A), dQKV = matrix(t, N, (H + 2 * K) * A), lse = vector(F32, N * H),
                            l = vector(F32, N * H);
        const struct tensor o = matrix(F32, N, H * A), dqkv = matrix(F32, N, (H + 2 * K) * A);
        op->attention_forward(O, lse, QKV, a);
        fp32->attention_forward(o, l, widened(QKV), wide);
        expect_stored("O", O, o), expect_same_bits("lse", lse, l);
        for (int in = 0; in < 2; in++) {
            const struct tensor dS = fill_with(vector(in ? F32 : t, H), 1), ds = widened(dS),
                                by_head = tensor_2d(lse.data, F32, B * H, S);
            op->attention_sinks_backward(dS, dO, O, by_head, a);
            fp32->attention_sinks_backward(ds, widened(dO), widened(O), by_head, wide);
            expect_stored("dsinks", dS, ds);
        }
        op->attention_backward_input(dQKV, dO, O, lse, QKV, a);
        fp32->attention_backward_input(dqkv, widened(dO), widened(O), l, widened(QKV), a);
        expect_stored("dQKV", dQKV, dqkv);
        check_guards_and_free();
    }
}

static void attention_in_parts(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t B = 2, n = 5, H = 4, K = 2, A = 3;
        struct attention a = { .S = 2 * n, .H = H, .K = K, .A = A, .scale = 0.7 }, wide_a = a;
        a.sinks = fill(vector(t, H), 2, "sinks"), wide_a.sinks = widened(a.sinks);
        CASE("attention in parts %s", dtype_name(t));
        const struct tensor Q = fill(matrix(t, B * n, H * A), 2, "q"), KV = fill(matrix(t, B * n, 2 * K * A), 2, "kv"),
                            dO = fill(matrix(t, B * n, H * A), 1, "do"), at = vector(I32, n);
        for (int i = 0; i < n; i++) ((int32_t *)at.data)[i] = 2 * i;
        const struct tensor O = matrix(t, B * n, H * A), lse = matrix(F32, B * H, n), delta = matrix(F32, B * H, n);
        const struct tensor o = matrix(F32, B * n, H * A), l = matrix(F32, B * H, n), e = matrix(F32, B * H, n);
        op->attention_part_forward(O, lse, Q, KV, at, at, a);
        fp32->attention_part_forward(o, l, widened(Q), widened(KV), at, at, wide_a);
        expect_stored("O", O, o), expect_same_bits("lse", lse, l);
        const struct tensor twice = widened(O);
        fp32->attention_merge(twice, l, widened(O), lse, a);
        op->attention_merge(O, copy_of(lse), O, lse, a);
        expect_stored("merged", O, twice);
        op->attention_delta(delta, dO, O, a), fp32->attention_delta(e, widened(dO), widened(O), a);
        expect_same_bits("delta", delta, e);
        for (int wide = 0; wide < 2; wide++) {
            const struct tensor dQ = fill(matrix(wide ? F32 : t, B * n, H * A), 1, "dq"), dq = widened(dQ),
                                dKV = fill(matrix(t, B * n, 2 * K * A), 1, "dkv"), dkv = widened(dKV);
            op->attention_part_backward(dQ, dKV, dO, delta, lse, Q, KV, at, at, a);
            fp32->attention_part_backward(dq, dkv, widened(dO), delta, lse, widened(Q), widened(KV), at, at, a);
            expect_stored("dQ", dQ, dq), expect_stored("dKV", dKV, dkv);
        }
        check_guards_and_free();
    }
}

static void attention_with_stored_scores(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t B = 2, n = 5, S = 2 * n, H = 4, K = 2, A = 3;
        const struct attention a = { .S = S, .H = H, .K = K, .A = A, .scale = 0.7, .cap = 3,
                                     .drop = { .p = 0.2, .cols = H } };
        CASE("attention with stored scores %s", dtype_name(t));
        const struct tensor L = fill(matrix(t, B * n, H * A), 2, "l"), R = fill(matrix(t, B * S, K * A), 2, "r"),
                            at = vector(I32, n);
        for (int i = 0; i < n; i++) ((int32_t *)at.data)[i] = 2 * i;
        const struct tensor X = matrix(F32, B * H * n, S), x = matrix(F32, B * H * n, S), lse = vector(F32, B * H * n),
                            sums = vector(F32, B * H * n);
        op->attention_scores(X, 0, L, R, at, a), fp32->attention_scores(x, 0, widened(L), widened(R), at, a);
        expect_same_bits("scores", X, x);
        op->attention_softmax(X, lse, at, a), fp32->attention_softmax(x, sums, at, a);
        expect_same_bits("probabilities", X, x), expect_same_bits("lse", lse, sums);
        const struct tensor dX = copy_of(X), dx = copy_of(x);
        op->attention_softmax_backward(dX, X, lse, a), fp32->attention_softmax_backward(dx, x, lse, a);
        expect_same_bits("gradients of scores", dX, dx);
        for (int wide = 0; wide < 2; wide++) {
            const struct tensor Y = fill(matrix(wide ? F32 : t, B * n, H * A), 1, "y"), y = widened(Y),
                                dR = matrix(wide ? F32 : t, B * S, K * A), dr = matrix(F32, B * S, K * A);
            op->attention_scores_times(Y, X, 0, R, at, a), fp32->attention_scores_times(y, x, 0, widened(R), at, a);
            op->attention_scores_transposed(dR, X, L, at, a);
            fp32->attention_scores_transposed(dr, x, widened(L), at, a);
            expect_stored("Y", Y, y), expect_stored("dR", dR, dr);
        }
        check_guards_and_free();
    }
}

static void elementwise(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t rows = 41, cols = 23;
        const struct dropout d = { .p = 0.3, .seed = 5, .stream = 9, .cols = cols };
        CASE("elementwise %s", dtype_name(t));
        const struct tensor X = fill(matrix(t, rows, cols), 4, "x"), Z = fill(matrix(t, rows, cols), 3, "z"),
                            Y = matrix(t, rows, cols);
        const struct tensor y = matrix(F32, rows, cols), x = widened(X), z = widened(Z);
        op->gelu_forward(Y, X), fp32->gelu_forward(y, x);
        expect_stored("gelu", Y, y);
        op->gelu_backward_input(Y, Z, X), fp32->gelu_backward_input(y, z, x);
        expect_stored("gelu'", Y, y);
        op->exact_gelu_forward(Y, X), fp32->exact_gelu_forward(y, x);
        expect_stored("exact gelu", Y, y);
        op->exact_gelu_backward_input(Y, Z, X), fp32->exact_gelu_backward_input(y, z, x);
        expect_stored("exact gelu'", Y, y);
        op->squared_relu_forward(Y, X), fp32->squared_relu_forward(y, x);
        expect_stored("squared relu", Y, y);
        op->squared_relu_backward_input(Y, Z, X), fp32->squared_relu_backward_input(y, z, x);
        expect_stored("squared relu'", Y, y);
        op->soft_cap_forward(Y, X, 3), fp32->soft_cap_forward(y, x, 3);
        expect_stored("soft cap", Y, y);
        op->soft_cap_backward_input(Y, Z, X, 5), fp32->soft_cap_backward_input(y, z, x, 5);
        expect_stored("soft cap'", Y, y);
        op->add(Y, X, Z), fp32->add(y, x, z);
        expect_stored("add", Y, y);
        op->dropout(Y, X, d), fp32->dropout(y, x, d);
        expect_stored("dropout", Y, y);
        struct tensor in_place = copy_of(Z);
        op->gelu_backward_input(in_place, in_place, X), fp32->gelu_backward_input(y, z, x);
        expect_stored("gelu' in place", in_place, y);
        in_place = copy_of(X);
        op->add(in_place, in_place, Z), fp32->add(y, x, z);
        expect_stored("add in place", in_place, y);
        in_place = copy_of(X);
        op->dropout(in_place, in_place, d), fp32->dropout(y, x, d);
        expect_stored("dropout in place", in_place, y);
        in_place = copy_of(X);
        op->scale(in_place, in_place, 0.3), fp32->scale(x, x, 0.3);
        expect_stored("scale", in_place, x);
        assert_true(ops_squares(op, Z) == ops_squares(fp32, z));
        check_guards_and_free();
    }
}

static void embedding(void **state)
{
    (void)state;
    FOR_NARROW(t, op)
        for (int kind = 0; kind < 2; kind++) {
            const int64_t N = 57, V = 11, D = 9;
            CASE("embedding %s", dtype_name(t));
            const struct tensor ids = integers(N, -2, 16, "ids"), W = fill(matrix(t, V, D), 1, "w"),
                                dY = fill(matrix(t, N, D), 1, "dy");
            const struct tensor Y = fill(matrix(t, N, D), 1, "y"), y = widened(Y),
                                dW = fill(matrix(kind ? F32 : t, V, D), 1, "dw"), dw = widened(dW);
            op->embedding_forward(Y, ids, W, 1, kind == 1);
            fp32->embedding_forward(y, ids, widened(W), 1, kind == 1);
            expect_stored(kind ? "Y accumulated" : "Y", Y, y);
            op->embedding_backward_weight(dW, dY, ids, 1);
            fp32->embedding_backward_weight(dw, widened(dY), ids, 1);
            expect_stored("dW", dW, dw);
            check_guards_and_free();
        }
}

static void cross_entropy(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t N = 31, V = 45;
        CASE("cross-entropy %s", dtype_name(t));
        const struct tensor X = fill(matrix(t, N, V), 6, "x"), labels = integers(N, 0, (int)V, "labels"),
                            x = widened(X);
        const struct tensor top = vector(F32, N), total = vector(F32, N), hit = vector(F32, N), dx = matrix(F32, N, V);
        const struct tensor top1 = vector(F32, N), total1 = vector(F32, N), hit1 = vector(F32, N), dX = matrix(t, N, V);
        ((int32_t *)labels.data)[3] = -1;
        op->cross_entropy_max(top, X), fp32->cross_entropy_max(top1, x);
        op->cross_entropy_sums(total, hit, X, top, labels, 0),
            fp32->cross_entropy_sums(total1, hit1, x, top1, labels, 0);
        expect_same_bits("top", top, top1), expect_same_bits("total", total, total1),
            expect_same_bits("hit", hit, hit1);
        double loss = 0, loss1 = 1;
        op->cross_entropy_loss(&loss, total, top, hit, labels, -1),
            fp32->cross_entropy_loss(&loss1, total1, top1, hit1, labels, -1);
        assert_true(loss == loss1);
        op->cross_entropy_backward(dX, X, total, top, labels, 0, -1, 0.5),
            fp32->cross_entropy_backward(dx, x, total1, top1, labels, 0, -1, 0.5);
        expect_stored("dlogits", dX, dx);
        op->cross_entropy_backward(X, X, total, top, labels, 0, -1, 0.5);
        expect_stored("dlogits in place", X, dx);
        check_guards_and_free();
    }
}

/* Sums of 2^13 ones: kept in bf16 they would stop at 256, in fp16 at 2048. */
static void sums_are_fp32(void **state)
{
    (void)state;
    FOR_NARROW(t, op) {
        const int64_t n = 1 << 13;
        CASE("sums %s", dtype_name(t));
        const struct tensor X = fill_with(matrix(t, 1, n), 1), W = fill_with(matrix(t, 1, n), 1), Y = matrix(t, 1, 1),
                            ones = fill_with(matrix(t, n, 1), 1);
        const struct tensor dW = fill_with(matrix(F32, 1, 1), 1), db = fill_with(vector(F32, 1), 1);
        op->linear_forward(Y, X, W, tensor_none);
        assert_true(tensor_get(Y, 0) == (double)n);
        op->linear_backward_weight(dW, db, ones, ones);
        assert_true(tensor_get(dW, 0) == (double)n + 1 && tensor_get(db, 0) == (double)n + 1);
        assert_true(ops_squares(op, ones) == (double)n);
        check_guards_and_free();
    }
}

/* ---- PyTorch ----------------------------------------------------------------------------------------------------- */

static struct safetensors golden;

/* A tensor of the file as bf16, which it is exactly. */
static struct tensor golden_tensor(const char *name)
{
    struct error err;
    const struct safetensors_entry *e = safetensors_find(&golden, name);
    if (e == NULL) fail_msg("golden/float16.safetensors has no %s", name);
    struct tensor X = e->ndim == 1 ? vector(BF16, e->dim[0]) : matrix(BF16, e->dim[0], e->dim[1]);
    if (safetensors_read(&golden, e, BF16, X.data, &err) != OK) fail_msg("%s", err.text);
    return X;
}

/* Two values each rounded once to bf16, from fp32 results less than `fp32_error` apart, are at most
 * one step apart and that. */
static void expect_one_step(const char *name, struct tensor got, double fp32_error)
{
    const struct tensor want = golden_tensor(name);
    assert_int_equal(tensor_count(got), tensor_count(want));
    for (int64_t i = 0; i < tensor_count(got); i++) {
        const double x = tensor_get(got, i), y = tensor_get(want, i);
        if (!(fabs(x - y) <= 2 * dtype_unit(BF16) * fmax(fabs(x), fabs(y)) + fp32_error))
            fail_msg("%s element %lld: got %.9g, PyTorch has %.9g", name, (long long)i, x, y);
    }
}

static double largest(struct tensor X)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(X); i++) most = fmax(most, fabs(tensor_get(X, i)));
    return most;
}

/* Twice what an fp32 sum of n products of numbers up to x and y may be off by: gamma_n n x y, twice. */
static double sums_off(int64_t n, double x, double y) { return 2.02 * (double)n * dtype_unit(F32) * (double)n * x * y; }

static void linear_as_pytorch(const struct ops *op)
{
    const struct tensor X = golden_tensor("linear.input"), W = golden_tensor("linear.weight"),
                        b = golden_tensor("linear.bias"), dY = golden_tensor("linear.dy");
    const int64_t N = tensor_rows(X), I = tensor_cols(X), O = tensor_rows(W);
    const struct tensor Y = matrix(BF16, N, O), dX = matrix(BF16, N, I), dW = fill_with(matrix(BF16, O, I), 0),
                        db = fill_with(vector(BF16, O), 0);
    op->linear_forward(Y, X, W, b);
    op->linear_backward_input(dX, dY, W);
    op->linear_backward_weight(dW, db, dY, X);
    expect_one_step("linear.y", Y, sums_off(I + 1, largest(X), largest(W)));
    expect_one_step("linear.dinput", dX, sums_off(O, largest(dY), largest(W)));
    expect_one_step("linear.dweight", dW, sums_off(N + 1, largest(dY), largest(X)));
    expect_one_step("linear.dbias", db, sums_off(N + 1, largest(dY), 1));
}

/* Intermediate results are all below 2^7, and an element goes through less than 2^5 roundings
 * and a sum of D or N terms. */
static void layernorm_as_pytorch(const struct ops *op)
{
    const struct tensor X = golden_tensor("layer_norm.input"), w = golden_tensor("layer_norm.weight"),
                        b = golden_tensor("layer_norm.bias");
    const struct tensor dY = golden_tensor("layer_norm.dy");
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    const double off = (32 + 2 * (double)D) * 128 * dtype_unit(F32);
    const struct tensor Y = matrix(BF16, N, D), dX = matrix(BF16, N, D), mean = vector(F32, N), rstd = vector(F32, N);
    const struct tensor dw = fill_with(vector(BF16, D), 0), db = fill_with(vector(BF16, D), 0);
    op->layernorm_forward(Y, mean, rstd, X, w, 0, b, 1e-5);
    op->layernorm_backward_input(dX, dY, X, w, 0, mean, rstd);
    op->layernorm_backward_weight(dw, db, dY, X, mean, rstd);
    expect_one_step("layer_norm.y", Y, off);
    expect_one_step("layer_norm.dinput", dX, off);
    expect_one_step("layer_norm.dweight", dw, off);
    expect_one_step("layer_norm.dbias", db, off);
}

static void rest_as_pytorch(const struct ops *op)
{
    struct tensor X = golden_tensor("gelu.input"), dY = golden_tensor("gelu.dy");
    struct tensor Y = matrix(BF16, tensor_rows(X), tensor_cols(X)), dX = matrix(BF16, tensor_rows(X), tensor_cols(X));
    op->gelu_forward(Y, X);
    op->gelu_backward_input(dX, dY, X);
    expect_one_step("gelu.y", Y, 32 * largest(X) * dtype_unit(F32));
    expect_one_step("gelu.dinput", dX, 256 * largest(dY) * dtype_unit(F32));
    const struct attention a = { .S = 7, .H = 3, .K = 3, .A = 5, .scale = 1 / sqrt(5) };
    X = golden_tensor("attention.input"), Y = matrix(BF16, tensor_rows(X), a.H * a.A);
    const struct tensor lse = vector(F32, tensor_rows(X) * a.H);
    op->attention_forward(Y, lse, X, a);
    /* of the scores, through exp */
    expect_one_step("attention.y", Y, 2 * sums_off(a.A, largest(X), largest(X)) * largest(X));
}

static void as_pytorch_computes(void **state)
{
    (void)state;
    struct error err;
    if (safetensors_open(&golden, "golden/float16.safetensors", &err) != OK) fail_msg("%s", err.text);
    CASE("beside PyTorch");
    linear_as_pytorch(ops_for(BF16));
    layernorm_as_pytorch(ops_for(BF16));
    rest_as_pytorch(ops_for(BF16));
    check_guards_and_free();
    safetensors_close(&golden);
}

int main(void)
{
    fp32 = ops_for(F32);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_whole), cmocka_unit_test(linear), cmocka_unit_test(linear_few_rows),
        cmocka_unit_test(linear_columns), cmocka_unit_test(layernorm), cmocka_unit_test(attention),
        cmocka_unit_test(attention_in_parts), cmocka_unit_test(attention_with_stored_scores),
        cmocka_unit_test(elementwise), cmocka_unit_test(embedding), cmocka_unit_test(cross_entropy),
            cmocka_unit_test(sums_are_fp32),
        cmocka_unit_test(as_pytorch_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
