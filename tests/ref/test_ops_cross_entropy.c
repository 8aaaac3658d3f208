/* Cross-entropy: compared with loops in long double; slices compared with the whole; extreme numbers.
 * tier: check
 */
#include "tests/ref/test_ops.h"

enum { IGNORE = -100 };

/* Everything one run gives; slices of the vocabulary are joined as devices would. */
struct result { struct tensor top, total, hit, dlogits; double loss; };

static struct tensor columns(struct tensor X, int64_t c0, int64_t c1)
{
    struct tensor piece = matrix(X.dtype, tensor_rows(X), c1 - c0);
    for (int64_t n = 0; n < tensor_rows(X); n++)
        for (int64_t c = c0; c < c1; c++)
            tensor_set(piece, n * (c1 - c0) + c - c0, tensor_get(X, n * tensor_cols(X) + c));
    return piece;
}

static struct result run(const struct ops *op, struct tensor logits, struct tensor labels, const int64_t *cut,
                         int slices, double scale)
{
    const enum dtype t = op->dtype;
    const int64_t N = tensor_rows(logits), V = tensor_cols(logits);
    struct result r = { .top = fill_with(vector(t, N), -INFINITY), .total = fill_with(vector(t, N), 0),
                        .hit = fill_with(vector(t, N), 0), .dlogits = matrix(t, N, V) };
    for (int s = 0; s < slices; s++) {
        const struct tensor top = vector(t, N);
        op->cross_entropy_max(top, columns(logits, cut[s], cut[s + 1]));
        for (int64_t n = 0; n < N; n++) tensor_set(r.top, n, fmax(tensor_get(r.top, n), tensor_get(top, n)));
    }
    for (int s = 0; s < slices; s++) {
        const struct tensor total = vector(t, N), hit = vector(t, N);
        op->cross_entropy_sums(total, hit, columns(logits, cut[s], cut[s + 1]), r.top, labels, cut[s]);
        for (int64_t n = 0; n < N; n++) {
            tensor_set(r.total, n, tensor_get(r.total, n) + tensor_get(total, n));
            tensor_set(r.hit, n, tensor_get(r.hit, n) + tensor_get(hit, n));
        }
    }
    op->cross_entropy_loss(&r.loss, r.total, r.top, r.hit, labels, IGNORE);
    for (int s = 0; s < slices; s++) {
        const struct tensor piece = columns(logits, cut[s], cut[s + 1]);
        op->cross_entropy_backward(piece, piece, r.total, r.top, labels, cut[s], IGNORE, scale);        /* in place */
        for (int64_t n = 0; n < N; n++)
            for (int64_t c = cut[s]; c < cut[s + 1]; c++)
                tensor_set(r.dlogits, n * V + c, tensor_get(piece, n * (cut[s + 1] - cut[s]) + c - cut[s]));
    }
    return r;
}

/* The softmax does not change when its shift does, so the maximum counts as exact.
 * Two adds more for joining slices. */
static void expect_result(struct result r, struct tensor logits, struct tensor labels, double scale)
{
    const int64_t N = tensor_rows(logits), V = tensor_cols(logits);
    const num factor = rounded(scale, 0);
    struct sum loss = { 0 };
    for (int64_t n = 0; n < N; n++) {
        struct sum s = { 0 };
        num top = exact(-INFINITY);
        const bool ignored = id_at(labels, n) == IGNORE;
        for (int64_t c = 0; c < V; c++) top.v = fmaxl(top.v, at(logits, n * V + c).v);
        for (int64_t c = 0; c < V; c++) sum_add(&s, expo(minus(at(logits, n * V + c), top)));
        const num total = plus(plus(sum_end(s), exact(0)), exact(0));
        expect_near("top", r.top, n, top);
        expect_near("total", r.total, n, total);
        for (int64_t c = 0; c < V; c++) {
            const num p = times(expo(minus(at(logits, n * V + c), top)), over(factor, total));
            const num slope = id_at(labels, n) == c ? minus(p, factor) : p;
            expect_near("dlogits", r.dlogits, n * V + c, ignored ? exact(0) : slope);
        }
        if (ignored) continue;
        /* in double from here on, whatever the format: three roundings */
        const num log_total = { logl(total.v), -log1pl(-total.e / total.v) };
        const long double hit = at(logits, n * V + id_at(labels, n)).v,
                          size = fabsl(log_total.v) + fabsl(top.v) + fabsl(hit);
        sum_add(&loss, (num){ log_total.v + top.v - hit, log_total.e + 3 * 1.2e-16L * size });
    }
    struct tensor got = tensor_1d(&r.loss, F64, 1);
    set_format(F64);
    expect_near("loss", got, 0, sum_end(loss));
    set_format(logits.dtype);
}

static void one_case(const struct ops *op, int64_t N, int64_t V, double size)
{
    const enum dtype t = op->dtype;
    const struct tensor logits = fill(matrix(t, N, V), size, "logits"), labels = integers(N, 0, (int)V, "labels");
    const int64_t whole[] = { 0, V }, cut[] = { 0, V / 5, V / 5, V - V / 3, V };
    if (N > 2) ((int32_t *)labels.data)[N / 2] = IGNORE;

    CASE("cross_entropy %s N=%d V=%d logits up to %g", dtype_name(t), (int)N, (int)V, size);
    expect_result(run(op, logits, labels, whole, 1, 0.1), logits, labels, 0.1);
    CASE("cross_entropy %s N=%d V=%d logits up to %g in 4 slices, one empty", dtype_name(t), (int)N, (int)V, size);
    expect_result(run(op, logits, labels, cut, 4, 0.1), logits, labels, 0.1);
    check_guards_and_free();
}

static void test_cross_entropy(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        one_case(op, 1, 1, 1);
        one_case(op, 0, 7, 1);
        one_case(op, 5, 17, 1);
        one_case(op, 67, 259, 5);
        one_case(op, 9, 33, 1e4);               /* exp would overflow without its shift */
        one_case(op, 9, 33, 1e30);
    }
}

static void test_minus_infinity_is_a_logit(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        CASE("cross_entropy %s with -infinity", dtype_name(t));
        const struct tensor logits = fill(matrix(t, 3, 20), 1, "x");
        const struct tensor label = integers(3, 7, 1, "seven");
        const int64_t cut[] = { 0, 5, 20 };
        for (int64_t c = 0; c < 5; c++) tensor_set(logits, c, -INFINITY);    /* row 0: a whole slice; label elsewhere */
        tensor_set(logits, 20 + 3, -INFINITY);
        const struct result r = run(op, logits, label, cut, 2, 1);
        assert_true(isfinite(r.loss));
        for (int64_t i = 0; i < 60; i++) assert_true(isfinite(tensor_get(r.dlogits, i)));
        for (int64_t c = 0; c < 5; c++) expect_near("dlogits", r.dlogits, c, exact(0));

        tensor_set(logits, 40 + 7, -INFINITY);                           /* the label itself: impossible, and it came */
        assert_true(run(op, logits, label, cut, 2, 1).loss == INFINITY);
        tensor_set(logits, 40 + 8, NAN);
        assert_true(isnan(run(op, logits, label, cut, 2, 1).loss));
        check_guards_and_free();
    }
}

static struct tensor X, Y, labels;

/* Y = the loss of each row by itself. */
static void losses(void)
{
    const struct ops *op = ops_for(F64);
    for (int64_t n = 0; n < tensor_rows(X); n++) {
        double top, total, hit, loss;
        const struct tensor row = tensor_2d((double *)X.data + n * tensor_cols(X), F64, 1, tensor_cols(X));
        const struct tensor label = tensor_1d((int32_t *)labels.data + n, I32, 1);
        const struct tensor t1 = tensor_1d(&top, F64, 1), t2 = tensor_1d(&total, F64, 1), t3 = tensor_1d(&hit, F64, 1);
        op->cross_entropy_max(t1, row);
        op->cross_entropy_sums(t2, t3, row, t1, label, 0);
        op->cross_entropy_loss(&loss, t2, t1, t3, label, IGNORE);
        tensor_set(Y, n, loss);
    }
}

static void test_gradient(void **state)
{
    (void)state;
    const int64_t N = 4, V = 11, whole[] = { 0, V };
    CASE("cross_entropy, gradient");
    X = fill(matrix(F64, N, V), 2, "x"), Y = vector(F64, N), labels = integers(N, 0, (int)V, "labels");
    ((int32_t *)labels.data)[1] = IGNORE;
    const struct result r = run(ops_for(F64), X, labels, whole, 1, 0.25);
    expect_gradient("dlogits", r.dlogits, X, losses, Y, fill_with(vector(F64, N), 0.25), V + 5);
    check_guards_and_free();
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    const int64_t N = 137, V = 311, whole[] = { 0, V };
    FOR_FORMATS(t, op) {
        CASE("cross_entropy %s, five threads against one", dtype_name(t));
        const struct tensor logits = fill(matrix(t, N, V), 5, "logits"), label = integers(N, 0, (int)V, "labels");
        omp_set_num_threads(1);
        const struct result one = run(op, logits, label, whole, 1, 0.1);
        omp_set_num_threads(5);
        const struct result many = run(op, logits, label, whole, 1, 0.1);
        omp_set_num_threads(before);
        expect_same_bits("total", many.total, one.total);
        expect_same_bits("dlogits", many.dlogits, one.dlogits);
        assert_true(one.loss == many.loss);
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_minus_infinity_is_a_logit),
            cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
