/* The linear layer: compared with loops in long double, exactly for small integers; its backward compared with finite
 * differences of its forward.
 * tier: check
 */
#include "tests/ref/test_ops.h"
#include <omp.h>

static struct tensor X, Y, W, b, dX, dY, dW, db;        /* of the case at hand, for the forward under test */

static const struct { int64_t N, I, O; } linear_shapes[] = {
    { 1, 1, 1 }, { 3, 5, 7 }, { 0, 4, 3 }, { 4, 0, 3 }, { 3, 4, 0 }, { 17, 64, 31 }, { 129, 67, 65 }, { 64, 128, 256 },
};
enum { LINEAR_SHAPES = sizeof linear_shapes / sizeof *linear_shapes };

static num product(struct tensor A, int64_t a0, int64_t a_step, struct tensor B, int64_t b0, int64_t b_step, int64_t n,
                   num start)
{
    struct sum s = { 0 };
    sum_add(&s, start);
    for (int64_t k = 0; k < n; k++) sum_add(&s, times(at(A, a0 + k * a_step), at(B, b0 + k * b_step)));
    return sum_end(s);
}

static void linear_case(const struct ops *op, int64_t N, int64_t I, int64_t O, bool bias)
{
    const enum dtype t = op->dtype;
    CASE("linear %s N=%d I=%d O=%d%s", dtype_name(t), (int)N, (int)I, (int)O, bias ? "" : " no bias");
    X = fill(matrix(t, N, I), 1, "x"), W = fill(matrix(t, O, I), 1, "w"), dY = fill(matrix(t, N, O), 1, "dy");
    b = bias ? fill(vector(t, O), 1, "b") : tensor_none;
    Y = matrix(t, N, O), dX = matrix(t, N, I);
    dW = fill(matrix(t, O, I), 1, "dw"), db = bias ? fill(vector(t, O), 1, "db") : tensor_none;
    const struct tensor dW0 = copy_of(dW), db0 = bias ? copy_of(db) : tensor_none;

    op->linear_forward(Y, X, W, b);
    op->linear_backward_input(dX, dY, W);
    op->linear_backward_weight(dW, db, dY, X);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t o = 0; o < O; o++)
            expect_near("Y", Y, n * O + o, product(X, n * I, 1, W, o * I, 1, I, bias ? at(b, o) : exact(0)));
        for (int64_t i = 0; i < I; i++)
            expect_near("dX", dX, n * I + i, product(dY, n * O, 1, W, i, I, O, exact(0)));
    }
    for (int64_t o = 0; o < O; o++) {
        for (int64_t i = 0; i < I; i++)
            expect_near("dW", dW, o * I + i, product(dY, o, O, X, i, I, N, at(dW0, o * I + i)));
        struct sum s = { 0 };
        for (int64_t n = 0; n < N; n++) sum_add(&s, at(dY, n * O + o));
        if (bias) expect_near("db", db, o, plus(at(db0, o), sum_end(s)));
    }
    check_guards_and_free();
}

static void test_linear(void **state)
{
    (void)state;
    FOR_FORMATS(t, op)
        for (int i = 0; i < LINEAR_SHAPES; i++)
            for (int bias = 0; bias < 2; bias++)
                linear_case(op, linear_shapes[i].N, linear_shapes[i].I, linear_shapes[i].O, bias);
}

/* Small whole numbers: every sum is exact in both formats and any order, so nothing but equality will do. */
static void test_linear_is_exact_on_integers(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t N = 61, I = 103, O = 37;
        CASE("linear %s on integers", dtype_name(t));
        X = matrix(t, N, I), W = matrix(t, O, I), b = vector(t, O), Y = matrix(t, N, O);
        for (int64_t i = 0; i < N * I; i++) tensor_set(X, i, (double)(i * 7 % 11 - 5));
        for (int64_t i = 0; i < O * I; i++) tensor_set(W, i, (double)(i * 5 % 13 - 6));
        for (int64_t o = 0; o < O; o++) tensor_set(b, o, (double)o);
        op->linear_forward(Y, X, W, b);
        for (int64_t n = 0; n < N; n++)
            for (int64_t o = 0; o < O; o++)
                expect_near("Y", Y, n * O + o, exact(product(X, n * I, 1, W, o * I, 1, I, at(b, o)).v));
        check_guards_and_free();
    }
}

/* Few rows and a large matrix have a product of their own: each element is near the exact one, and each row has the
 * bits that it has alone, with one thread as with three. */
static void test_few_rows(void **state)
{
    (void)state;
    const int64_t N = 9, I = 515, O = 513;
    const int before = omp_get_max_threads();
    FOR_FORMATS(t, op) {
        CASE("linear %s, few rows of a large matrix", dtype_name(t));
        X = fill(matrix(t, N, I), 1, "x"), W = fill(matrix(t, O, I), 1, "w"), b = fill(vector(t, O), 1, "b");
        Y = matrix(t, N, O), dY = matrix(t, 1, O);
        op->linear_forward(Y, X, W, b);
        for (int64_t n = 0; n < N; n += 4)
            for (int64_t o = 0; o < O; o++)
                expect_near("Y", Y, n * O + o, product(X, n * I, 1, W, o * I, 1, I, at(b, o)));
        for (int64_t n = 0; n < N; n++) {
            omp_set_num_threads(n % 2 ? 3 : 1);
            op->linear_forward(dY, tensor_rows_of(X, n, 1), W, b);
            assert_memory_equal(dY.data, tensor_rows_of(Y, n, 1).data, tensor_bytes(dY));
        }
        omp_set_num_threads(before);
        check_guards_and_free();
    }
}

static struct tensor rows_of(struct tensor t, int64_t first, int64_t count)
{
    char *data = (char *)t.data + (size_t)(first * (t.ndim == 2 ? tensor_cols(t) : 1)) * dtype_size(t.dtype);
    return t.ndim == 2 ? tensor_2d(data, t.dtype, count, tensor_cols(t)) : tensor_1d(data, t.dtype, count);
}

/* Ranges of outputs, one after the other, have the bits of all at once:
 * columns lie where they belong, the others stay. */
static void test_columns(void **state)
{
    enum { TILES = 4 };
    static const int64_t edge[TILES + 1] = { 0, 5, 6, 6, 37 };          /* one of them empty */
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t N = 61, I = 23, O = 37;
        CASE("linear %s in columns", dtype_name(t));
        X = matrix(t, N, I), W = matrix(t, O, I), b = vector(t, O), dY = matrix(t, N, O);
        for (int64_t i = 0; i < N * I; i++) tensor_set(X, i, (double)(i * 7 % 11 - 5));
        for (int64_t i = 0; i < O * I; i++) tensor_set(W, i, (double)(i * 5 % 13 - 6));
        for (int64_t i = 0; i < N * O; i++) tensor_set(dY, i, (double)(i * 3 % 7 - 3));
        for (int64_t o = 0; o < O; o++) tensor_set(b, o, (double)o);
        Y = fill_with(matrix(t, N, O), 9), dX = fill_with(matrix(t, N, I), 9), dW = fill_with(matrix(t, O, I), 2);
        const struct tensor y = matrix(t, N, O), dx = matrix(t, N, I), dw = fill_with(matrix(t, O, I), 2);
        op->linear_forward(y, X, W, b);
        op->linear_backward_input(dx, dY, W);
        op->linear_backward_weight(dw, tensor_none, dY, X);
        for (int i = 0; i < TILES; i++) {
            const int64_t first = edge[i], n = edge[i + 1] - first;
            op->linear_forward_columns(Y, first, X, rows_of(W, first, n), rows_of(b, first, n));
            for (int64_t k = edge[i + 1]; k < O; k++) assert_true(tensor_get(Y, k) == 9);
            op->linear_backward_input_columns(dX, dY, first, rows_of(W, first, n), i > 0);
            op->linear_backward_weight_columns(rows_of(dW, first, n), dY, first, X);
        }
        expect_same_bits("Y", Y, y), expect_same_bits("dX", dX, dx), expect_same_bits("dW", dW, dw);
        check_guards_and_free();
    }
}

static void forward(void) { ops_for(F64)->linear_forward(Y, X, W, b); }

static void test_gradient(void **state)
{
    (void)state;
    const int64_t N = 5, I = 7, O = 3;
    const struct ops *op = ops_for(F64);
    CASE("linear, gradient");
    X = fill(matrix(F64, N, I), 1, "x"), W = fill(matrix(F64, O, I), 1, "w"), b = fill(vector(F64, O), 1, "b");
    Y = matrix(F64, N, O), dY = fill(matrix(F64, N, O), 1, "dy"), dX = matrix(F64, N, I);
    dW = fill_with(matrix(F64, O, I), 0), db = fill_with(vector(F64, O), 0);
    op->linear_backward_input(dX, dY, W);
    op->linear_backward_weight(dW, db, dY, X);
    expect_gradient("dX", dX, X, forward, Y, dY, I + 1);
    expect_gradient("dW", dW, W, forward, Y, dY, I + 1);
    expect_gradient("db", db, b, forward, Y, dY, I + 1);
    check_guards_and_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_linear_is_exact_on_integers),
            cmocka_unit_test(test_few_rows),
            cmocka_unit_test(test_columns), cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
