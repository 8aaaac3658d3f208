/* Products whose sums are exact (ref/exact/): held to integers of 128 bits, for any cut of terms, rows and tokens; and
 * how far they are from the product in fp64.
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

enum { N = 37, D = 29, O = 23 };

/* The rule that is tested: every test runs with each. */
static enum exact_rule rule;

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static float *numbers(int64_t count, uint64_t stream, double range)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((random_uniform(5, stream, (uint64_t)i) - 0.5)
                       * exp2(range * (random_uniform(5, stream + 1, (uint64_t)i) - 0.5)));
    return x;
}

static struct tensor matrix(void *data, int64_t rows, int64_t cols) { return tensor_2d(data, F32, rows, cols); }

static struct tensor sums_of(int64_t rows, int64_t cols)
{
    void *data = calloc((size_t)(rows * cols), sizeof(fixed_sum));
    assert_non_null(data);
    return tensor_2d(data, EXACT, rows, cols);
}

/* A copy of some rows and columns. */
static struct tensor cut(struct tensor x, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    float *to = malloc((size_t)(rows * cols + 1) * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * cols, (const float *)x.data + (row + i) * tensor_cols(x) + col, (size_t)cols * sizeof *to);
    return matrix(to, rows, cols);
}

/* ---- the rule, written again: docs/checking/exact.md ------------------------------------------------------------- */

enum { NO_GRID = 9999 };

static int rule_grid(double top, int bits, int finest)
{
    int e;
    if (top == 0) return NO_GRID;
    frexp(top, &e);
    return e - bits > finest ? e - bits : finest;
}

static double rule_top(struct tensor x, int64_t i, bool column)
{
    double top = 0;
    const int64_t n = column ? tensor_rows(x) : tensor_cols(x);
    for (int64_t k = 0; k < n; k++) {
        const double v = fabs(tensor_get(x, column ? k * tensor_cols(x) + i : i * tensor_cols(x) + k));
        top = v > top ? v : top;
    }
    return top;
}

static fixed_sum rule_term(double x, int gx, double y, int gy)
{
    const fixed_sum a = (int64_t)nearbyint(ldexp(x, -gx)), b = (int64_t)nearbyint(ldexp(y, -gy));
    return a * b * ((fixed_sum)1 << (gx + gy + 100));
}

/* How many bits the page gives operands of a product, and of a sum over tokens. */
static int rule_bits(void) { return rule == SUMS_EXACT2 ? 28 : 22; }
static int rule_token_bits(void) { return rule == SUMS_EXACT2 ? 28 : 21; }

/* Element (n, o) of X W^T: both grids from 2^-50 on. */
static fixed_sum rule_forward(struct tensor X, struct tensor W, int64_t n, int64_t o)
{
    const int gx = rule_grid(rule_top(X, n, false), rule_bits(), -50),
              gw = rule_grid(rule_top(W, o, false), rule_bits(), -50);
    fixed_sum sum = 0;
    for (int64_t k = 0; k < tensor_cols(X) && gx != NO_GRID && gw != NO_GRID; k++)
        sum += rule_term(tensor_get(X, n * tensor_cols(X) + k), gx, tensor_get(W, o * tensor_cols(W) + k), gw);
    return sum;
}

/* Element (n, i) of dY W: gradients from 2^-64 on, the columns of W from 2^-36 on. */
static fixed_sum rule_input(struct tensor dY, struct tensor W, int64_t n, int64_t i)
{
    const int gy = rule_grid(rule_top(dY, n, false), rule_bits(), -64),
              gw = rule_grid(rule_top(W, i, true), rule_bits(), -36);
    fixed_sum sum = 0;
    for (int64_t k = 0; k < tensor_cols(dY) && gy != NO_GRID && gw != NO_GRID; k++)
        sum += rule_term(tensor_get(dY, n * tensor_cols(dY) + k), gy, tensor_get(W, k * tensor_cols(W) + i), gw);
    return sum;
}

/* Element (o, i) of dY^T X: each token on grids of its own. */
static fixed_sum rule_weight(struct tensor dY, struct tensor X, int64_t o, int64_t i)
{
    fixed_sum sum = 0;
    for (int64_t n = 0; n < tensor_rows(X); n++) {
        const int gy = rule_grid(rule_top(dY, n, false), rule_token_bits(), -64),
                  gx = rule_grid(rule_top(X, n, false), rule_token_bits(), -36);
        if (gy != NO_GRID && gx != NO_GRID)
            sum += rule_term(tensor_get(dY, n * tensor_cols(dY) + o), gy, tensor_get(X, n * tensor_cols(X) + i), gx);
    }
    return sum;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

/* Sizes of rows differ by 2^40, downwards, so that no sum leaves the window; one row is 0. */
static void uneven(struct tensor x)
{
    for (int64_t n = 0; n < tensor_rows(x); n++)
        for (int64_t d = 0; d < tensor_cols(x); d++)
            ((float *)x.data)[n * tensor_cols(x) + d] *= n == 3 ? 0 : (float)exp2((double)(n % 9) * -5);
}

static void test_as_integers_of_128_bits(void **state)
{
    const struct ops *op = ops_exact(F32, rule);
    const struct tensor X = matrix(numbers(N * D, 1, 20), N, D), W = matrix(numbers(O * D, 3, 20), O, D),
                        dY = matrix(numbers(N * O, 7, 20), N, O), none = tensor_none;
    const struct tensor Y = sums_of(N, O), dX = sums_of(N, D), dW = sums_of(O, D), y = matrix(malloc(N * O * 4), N, O);
    (void)state;
    uneven(X), uneven(dY);
    op->linear_forward(Y, X, W, none), op->linear_forward(y, X, W, none);
    op->linear_backward_input(dX, dY, W);
    op->linear_backward_weight(dW, none, dY, X);
    for (int64_t i = 0; i < N * O; i++) {
        const fixed_sum want = rule_forward(X, W, i / O, i % O);
        if (fixed_at(Y.data, i) != want) fail_msg("Y[%d,%d] is not the rule's", (int)(i / O), (int)(i % O));
        assert_true(((float *)y.data)[i] == (float)fixed_to_odd(want));
    }
    for (int64_t i = 0; i < N * D; i++)
        if (fixed_at(dX.data, i) != rule_input(dY, W, i / D, i % D))
            fail_msg("dX[%d,%d] is not the rule's", (int)(i / D), (int)(i % D));
    for (int64_t i = 0; i < O * D; i++)
        if (fixed_at(dW.data, i) != rule_weight(dY, X, i / D, i % D))
            fail_msg("dW[%d,%d] is not the rule's", (int)(i / D), (int)(i % D));
    free(X.data), free(W.data), free(dY.data), free(Y.data), free(dX.data), free(dW.data), free(y.data);
}

/* Numbers just below 1, of one sign, with bits to the last: the longest integers there are. */
static struct tensor full(int64_t rows, int64_t cols, uint64_t stream)
{
    float *const x = malloc((size_t)(rows * cols) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (float)(1 - 0x1p-12 * random_uniform(5, stream, (uint64_t)i));
    return matrix(x, rows, cols);
}

/* As many terms as fp64 adds at once, and more: each sum is as large as such sums can be. */
static void test_full_integers(void **state)
{
    enum { TERMS = 4100, TOKENS = 1000, SIDE = 3 };
    const struct ops *op = ops_exact(F32, rule);
    const struct tensor X = full(SIDE, TERMS, 61), W = full(SIDE, TERMS, 63), dY = full(TOKENS, SIDE, 65),
                        x = full(TOKENS, SIDE, 67), Y = sums_of(SIDE, SIDE), dW = sums_of(SIDE, SIDE);
    (void)state;
    /* Tokens have one of four grids. */
    for (int64_t i = 0; i < TOKENS * SIDE; i++) tensor_set(dY, i, ldexp(tensor_get(dY, i), -(int)(i / SIDE % 4)));
    op->linear_forward(Y, X, W, tensor_none), op->linear_backward_weight(dW, tensor_none, dY, x);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        if (fixed_at(Y.data, i) != rule_forward(X, W, i / SIDE, i % SIDE))
            fail_msg("full Y[%d] is not the rule's", (int)i);
        if (fixed_at(dW.data, i) != rule_weight(dY, x, i / SIDE, i % SIDE))
            fail_msg("full dW[%d] is not the rule's", (int)i);
    }
    free(X.data), free(W.data), free(dY.data), free(x.data), free(Y.data), free(dW.data);
}

/* Devices with parts of the columns of X and W: their sums add up to the whole, if they know the tops of whole rows. */
static void test_any_cut_of_the_terms(void **state)
{
    const struct ops *op = ops_exact(F32, rule);
    const struct tensor X = matrix(numbers(N * D, 11, 20), N, D), W = matrix(numbers(O * D, 13, 20), O, D),
                        Y = sums_of(N, O), part = sums_of(N, O), all = sums_of(N, O);
    float x_top[N], w_top[O];
    (void)state;
    op->row_tops(tensor_1d(x_top, F32, N), X), op->row_tops(tensor_1d(w_top, F32, O), W);
    op->linear_forward(Y, X, W, tensor_none);
    for (int64_t first = 0, step = 1; first < D; first += step, step = step * 2 + 1) {
        const int64_t width = D - first < step ? D - first : step;
        const struct tensor x = cut(X, 0, N, first, width), w = cut(W, 0, O, first, width);
        op->linear_forward_part(part, x, tensor_1d(x_top, F32, N), w, tensor_1d(w_top, F32, O), tensor_none);
        op->add(all, all, part);
        free(x.data), free(w.data);
    }
    assert_memory_equal(all.data, Y.data, tensor_bytes(Y));
    free(X.data), free(W.data), free(Y.data), free(part.data), free(all.data);
}

/* Tokens in uneven pieces, last piece first: microbatches and data-parallel copies. */
static void test_any_cut_of_the_tokens(void **state)
{
    const struct ops *op = ops_exact(F32, rule);
    enum { TOKENS = 700 };                      /* more than one product of a bin */
    const struct tensor X = matrix(numbers(TOKENS * D, 21, 8), TOKENS, D),
                        dY = matrix(numbers(TOKENS * O, 23, 20), TOKENS, O), whole = sums_of(O, D), all = sums_of(O, D),
                        b = tensor_1d(calloc(O, 16), EXACT, O), b_all = tensor_1d(calloc(O, 16), EXACT, O);
    (void)state;
    uneven(dY);
    op->linear_backward_weight(whole, b, dY, X);
    for (int64_t end = TOKENS, step = 1; end > 0; end -= step, step = step * 3 + 1) {
        if (step > end) step = end;
        const struct tensor x = cut(X, end - step, step, 0, D), dy = cut(dY, end - step, step, 0, O);
        op->linear_backward_weight(all, b_all, dy, x);
        free(x.data), free(dy.data);
    }
    assert_memory_equal(all.data, whole.data, tensor_bytes(whole));
    assert_memory_equal(b_all.data, b.data, tensor_bytes(b));
    free(X.data), free(dY.data), free(whole.data), free(all.data), free(b.data), free(b_all.data);
}

/* A row with a NaN or an infinity has no sums; the rows beside it do.  dW has none at all. */
static void test_numbers_that_are_none(void **state)
{
    const struct ops *op = ops_exact(F32, rule);
    const struct tensor X = matrix(numbers(N * D, 31, 4), N, D), W = matrix(numbers(O * D, 33, 4), O, D),
                        dY = matrix(numbers(N * O, 35, 4), N, O), Y = matrix(malloc(N * O * 4), N, O), dW = sums_of(O,
                                                                                                                    D);
    (void)state;
    ((float *)X.data)[5 * D + 2] = NAN, ((float *)X.data)[6 * D] = INFINITY;
    op->linear_forward(Y, X, W, tensor_none);
    for (int64_t i = 0; i < N * O; i++)
        assert_true((isnan(((float *)Y.data)[i]) != 0) == (i / O == 5 || i / O == 6));
    op->linear_backward_weight(dW, tensor_none, dY, X);
    for (int64_t i = 0; i < O * D; i++) assert_true(isnan(tensor_get(dW, i)));
    free(X.data), free(W.data), free(dY.data), free(Y.data), free(dW.data);
}

/* Sums beyond 2^27 do not exist, whatever is added to them. */
static void test_the_end_of_the_window(void **state)
{
    const fixed_sum large = fixed_of(0x1p26);
    (void)state;
    assert_true(fixed_of(0x1p27) == FIXED_NONE && fixed_of(-0x1p28) == FIXED_NONE && fixed_of(NAN) == FIXED_NONE);
    assert_true(fixed_add(large, large) == FIXED_NONE && fixed_add(FIXED_NONE, -large) == FIXED_NONE);
    assert_true(fixed_to_double(fixed_add(large, -fixed_of(0x1p-100))) == 0x1p26);
    assert_true(fixed_to_double(fixed_of(0x1.8p-100)) == 0x1p-99 && fixed_of(0x1p-101) == 0);
}

/* A sum just above the middle of two bf16 numbers, by less than fp64 can hold, rounds up. */
static void test_rounds_once(void **state)
{
    const fixed_sum middle = fixed_of(1 + 0x1p-8), more = fixed_add(middle, fixed_of(0x1p-90));
    fixed_sum sums[2] = { middle, more };
    uint16_t narrow[2];
    (void)state;
    tensor_convert(tensor_1d(narrow, BF16, 2), tensor_1d(sums, EXACT, 2));
    assert_true(bf16_to_double(narrow[0]) == 1 && bf16_to_double(narrow[1]) == 1 + 0x1p-7);
}

/* A product in the middle of two numbers of a format, and a bias below fp64's last bit, which decides.  A bias below
 * the last bit of a sum does not; where there is one, the others decide as well. */
static void test_a_bias_decides(void **state)
{
    enum { BIASES = 4 };
    static const enum dtype format[] = { F32, BF16 };
    static const struct { double x, w, unit; } middle[] = {
        { 1 + 0x1p-11, 1 + 0x1p-13, 0x1p-23 },  /* 1 + 2^-11 + 2^-13 + 2^-24 */
        { 1 + 0x1p-4, 1 + 0x1p-4, 0x1p-7 },     /* 1 + 2^-3 + 2^-8 */
    };
    (void)state;
    for (int k = 0; k < 4; k++) {
        const enum dtype t = format[k % 2];
        const struct ops *const op = ops_exact(t, rule);
        const double bias[BIASES] = { k < 2 ? 0 : 0x1p-110, 0x1p-70, -0x1p-70, 0 }, unit = middle[k % 2].unit,
                     below = middle[k % 2].x * middle[k % 2].w - unit / 2,
                     want[BIASES] = { below, below + unit, below, below };
        const struct tensor X = tensor_2d(calloc(1, 16), t, 1, 1), W = tensor_2d(calloc(BIASES, 16), t, BIASES, 1),
                            b = tensor_1d(calloc(BIASES, 16), t, BIASES),
                            Y = tensor_2d(calloc(BIASES, 16), t, 1, BIASES);
        tensor_set(X, 0, middle[k % 2].x);
        for (int i = 0; i < BIASES; i++) tensor_set(W, i, middle[k % 2].w), tensor_set(b, i, bias[i]);
        op->linear_forward(Y, X, W, b);
        for (int i = 0; i < BIASES; i++)
            if (tensor_get(Y, i) != want[i]) fail_msg("bias %a: %a, not %a", bias[i], tensor_get(Y, i), want[i]);
        free(X.data), free(W.data), free(b.data), free(Y.data);
    }
}

/* Sums of four uniform numbers: nearly normal. */
static float *bells(int64_t count, uint64_t stream)
{
    float *const x = numbers(count, stream, 0);
    for (int64_t i = 0; i < count; i++)
        for (uint64_t k = 2; k < 5; k++) x[i] += (float)(random_uniform(5, stream + 10 * k, (uint64_t)i) - 0.5);
    return x;
}

/* Norm over norm against fp64, of numbers as a layer has them: at most five times the fp32 product's error, with two
 * slices at most as much. */
static void test_error(void **state)
{
    static const int64_t depth[] = { 128, 2048, 16384 };
    const double most = rule == SUMS_EXACT2 ? 1 : 5;
    (void)state;
    for (int k = 0; k < 3; k++) {
        const int64_t K = depth[k], rows = 6, cols = 5;
        const struct tensor X = matrix(bells(rows * K, 41), rows, K), W = matrix(bells(cols * K, 43), cols, K),
                            exact = matrix(malloc(120), rows, cols), plain = matrix(malloc(120), rows, cols);
        double error[2] = { 0, 0 };
        ops_exact(F32, rule)->linear_forward(exact, X, W, tensor_none);
        ops_for(F32)->linear_forward(plain, X, W, tensor_none);
        for (int64_t i = 0; i < rows * cols; i++) {
            double truth = 0;
            for (int64_t j = 0; j < K; j++) truth += tensor_get(X, i / cols * K + j) * tensor_get(W, i % cols * K + j);
            error[0] += pow(tensor_get(exact, i) - truth, 2), error[1] += pow(tensor_get(plain, i) - truth, 2);
        }
        if (error[0] > most * most * error[1])
            fail_msg("K %d: %g times the error of fp32", (int)K, sqrt(error[0] / error[1]));
        free(X.data), free(W.data), free(exact.data), free(plain.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_integers_of_128_bits), cmocka_unit_test(test_full_integers),
        cmocka_unit_test(test_any_cut_of_the_terms),
        cmocka_unit_test(test_any_cut_of_the_tokens), cmocka_unit_test(test_numbers_that_are_none),
        cmocka_unit_test(test_the_end_of_the_window), cmocka_unit_test(test_rounds_once),
        cmocka_unit_test(test_a_bias_decides), cmocka_unit_test(test_error),
    };
    int failed = 0;
    for (rule = SUMS_EXACT; rule < EXACT_RULES; rule++)
        failed += cmocka_run_group_tests_name(exact_rule_names[rule], tests, NULL, NULL);
    return failed;
}
