/* The project's own exp, called through the softmax slope of a row with maximum 0 and total 1, compared with the C
 * library's in a wider format: the error is below one unit in the last place for all arguments.
 */
#include "tests/ref/test_ops.h"

/* e^x by the operation under test: the label is in another slice, so nothing is subtracted. */
static void run(const struct ops *op, struct tensor Y, struct tensor X)
{
    const enum dtype t = op->dtype;
    const struct tensor row = tensor_2d(X.data, t, 1, tensor_count(X)),
                        slope = tensor_2d(Y.data, t, 1, tensor_count(X));
    const struct tensor label = integers(1, -2, 1, "label");
    op->cross_entropy_backward(slope, row, fill_with(vector(t, 1), 1), fill_with(vector(t, 1), 0), label, 0, -1, 1);
}

/* Spacing of the format's numbers at x. */
static long double ulp(enum dtype t, long double x)
{
    const int mantissa = t == F32 ? FLT_MANT_DIG : DBL_MANT_DIG, least = t == F32 ? FLT_MIN_EXP : DBL_MIN_EXP;
    int exponent;
    frexpl(x, &exponent);
    return ldexpl(1, (exponent > least ? exponent : least) - mantissa);
}

/* The exact value with the bound of ulps; and the ulps that were found. */
static double expect_exp(struct tensor Y, struct tensor X, double ulps)
{
    double worst = 0;
    for (int64_t i = 0; i < tensor_count(X); i++) {
        const long double want = expl(tensor_get(X, i)), largest = X.dtype == F32 ? FLT_MAX : DBL_MAX;
        if (want > largest) continue;             /* rounds to infinity or the largest; the edges are tested by value */
        const num bound = { want, ulps * ulp(X.dtype, want) };
        expect_near("exp", Y, i, bound);
        worst = fmax(worst, (double)(fabsl(tensor_get(Y, i) - want) / ulp(X.dtype, want)));
    }
    return worst;
}

static void test_exp_is_within_one_ulp(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const int64_t count = 1 << 20;
        const double low = t == F32 ? -106 : -760, high = t == F32 ? 88.75 : 709.8, reach[] = { 1e-3, 0.5, 20 };
        double worst = 0;
        CASE("exp %s", dtype_name(t));
        struct tensor X = vector(t, count), Y = vector(t, count);
        for (int64_t i = 0; i < count; i++) tensor_set(X, i, low + (high - low) * ((double)i + 0.37) / (double)count);
        run(op, Y, X);
        worst = fmax(worst, expect_exp(Y, X, 1));
        for (int r = 0; r < 3; r++) {
            fill(X, reach[r], "x");
            run(op, Y, X);
            worst = fmax(worst, expect_exp(Y, X, 1));
        }
        print_message("exp %s: off by at most %.3f ulp\n", dtype_name(t), worst);
        check_guards_and_free();
    }
}

static void test_exp_at_the_edges(void **state)
{
    (void)state;
    FOR_FORMATS(t, op) {
        const bool narrow = t == F32;
        const double edge[] = { 0, -0.0, narrow ? 88.722831 : 709.78271289338, narrow ? -87.33655 : -708.3964185322641,
                                narrow ? -103.9720840 : -745.1332191019411, 1e-30, -1e-30, 1, -1, 0.34657359,
                                    -0.34657359 };
        const double beyond[] = { narrow ? 88.7228470 : 709.7827128933841, 1e30, INFINITY,
                                  narrow ? -103.9722 : -745.14, -1e30, -INFINITY };
        CASE("exp %s at the edges", dtype_name(t));
        struct tensor X = vector(t, 18), Y = vector(t, 18);
        for (int i = 0; i < 11; i++) tensor_set(X, i, edge[i]);
        for (int i = 0; i < 6; i++) tensor_set(X, 11 + i, beyond[i]);
        tensor_set(X, 17, NAN);
        run(op, Y, X);
        for (int i = 0; i < 11; i++)
            expect_near("exp", Y, i, (num){ expl(tensor_get(X, i)), ulp(t, expl(tensor_get(X, i))) });
        assert_true(tensor_get(Y, 0) == 1 && tensor_get(Y, 1) == 1);
        for (int i = 11; i < 14; i++) assert_true(tensor_get(Y, i) == INFINITY);
        for (int i = 14; i < 17; i++) assert_true(tensor_get(Y, i) == 0);
        assert_true(isnan(tensor_get(Y, 17)));
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_exp_is_within_one_ulp),
                                        cmocka_unit_test(test_exp_at_the_edges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
