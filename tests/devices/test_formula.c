/* Formulas of warm-ups: operators as in C, the two meanings of a division, and what is refused.
 * tier: check
 */
#include "emulated_devices/course/warmups/formula.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

/* W is 3, n is 12, r is -1, h is 2.5; x has 4, 5 and 6. */
static struct formula_scope some_names(bool like_c)
{
    struct formula_scope s = { .like_c = like_c, .arrays = 1 };
    s.array[0].count = 3;
    strcpy(s.array[0].name, "x");
    for (int i = 0; i < 3; i++) s.array[0].element[i] = 4 + i;
    const struct { const char *name; double value; bool whole; } of[] = { { "W", 3, true }, { "n", 12, true },
                                                                          { "r", -1, true }, { "h", 2.5, false } };
    for (size_t i = 0; i < 4; i++) assert_int_equal(formula_set(&s, of[i].name, of[i].value, of[i].whole, NULL), OK);
    return s;
}

static double value_of(const char *formula, bool like_c)
{
    const struct formula_scope s = some_names(like_c);
    struct formula_number n = { 0, false };
    struct error err = { OK, "" };
    if (formula_compute(&s, formula, &n, &err) != OK) fail_msg("%s", err.text);
    return n.value;
}

/* A macro makes the formula a line of C, too, so that the compiler says the expected number. */
#define AS_IN_C(...) compare_with_c(#__VA_ARGS__, (double)(__VA_ARGS__))

static void compare_with_c(const char *formula, double want)
{
    const double got = value_of(formula, true);
    if (got != want) fail_msg("%s is %g, and in C it is %g", formula, got, want);
}

static void test_operators_are_those_of_c(void **state)
{
    (void)state;
    const int W = 3, n = 12, r = -1;
    const float h = 2.5f, x[] = { 4, 5, 6 };
    AS_IN_C(n - 2 - 3); AS_IN_C(n / W / 2); AS_IN_C(2 + 3 * 4 - 10 / 4); AS_IN_C(7 / 2 * 2);
    AS_IN_C(-7 / 2); AS_IN_C(-7 % 3); AS_IN_C(r % W); AS_IN_C(h * 2 / 4); AS_IN_C(7 / 2.0);
    AS_IN_C((n + 1) / W); AS_IN_C(n < W ? 1 : 2 + 3); AS_IN_C((n > W) == 1); AS_IN_C(1 + (n % 5 == 2) * 4);
    AS_IN_C((W == 3 && n == 11) || r < 0); AS_IN_C(!n + !0 * 2); AS_IN_C(n != 12 ? 1 / (n - 12) : 5); AS_IN_C(r ^ 1);
    AS_IN_C(n ^ 5 ^ 1); AS_IN_C(n == 12 ? W == 2 ? 1 : 2 : 3); AS_IN_C(x[0] * x[W - 1] - x[1]); AS_IN_C(- - n);
    AS_IN_C(0x10 + 1e2); AS_IN_C(n >= 12 && W <= 3 && 2 < 3 && 1 != 2);
}

static void test_a_formula_divides_without_cutting(void **state)
{
    (void)state;
    assert_true(value_of("7 / 2", false) == 3.5);
    assert_true(value_of("2^-7", false) == 1.0 / 128 && value_of("-2^2", false) == -4);
    assert_true(value_of("2^3^2", false) == 512 && value_of("2 * 3^2", false) == 18);
    assert_true(value_of("1 / 3 * 3", false) == 1);
    /* `&&` binds before `||`, and a comparison before `==`. */
    assert_true(value_of("1 || 0 && 0", true) == 1 && value_of("3 > 2 == 1", true) == 1);
    /* The side that does not count is not computed. */
    assert_true(value_of("0 && 1 / 0", true) == 0 && value_of("1 || x[9]", true) == 1);
}

static void test_functions(void **state)
{
    (void)state;
    assert_true(value_of("mod(r, W)", false) == 2 && value_of("mod(r - 6, W)", true) == 2);
    assert_true(value_of("min(W, n) + max(W, n)", false) == 15 && value_of("ceil(n / 5)", false) == 3);
    assert_true(value_of("sum(k, 0, W - 1, x[k] * k)", false) == 17 && value_of("sum(k, 1, 0, 1 / 0)", false) == 0);
    assert_true(value_of("sum(a, 1, 2, sum(b, 1, a, 10 * a + b))", false) == 11 + 21 + 22);
    assert_true(value_of("fp32(2^24 + 1) - 2^24", false) == 0 && value_of("bf16(257)", false) == 256);
    assert_true(value_of("fp16(2049)", false) == 2048 && value_of("xor(5, 4)", false) == 1);
    /* 12 in 5 blocks: 3 3 2 2 2. */
    assert_true(value_of("block_of(n, 5, 1).count", true) == 3 && value_of("block_of(n, 5, 3).start", true) == 8);
    assert_true(value_of("sum(i, 0, 4, block_of(n, 5, i).count)", false) == 12);
    assert_true(fabs(value_of("exp(log(h)) + log2(8)", false) - 5.5) < 1e-12);
}

/* Each is refused in one line that says where. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct { const char *formula, *says; } of[] = {
        { "", "something is missing" }, { "1 +", "something is missing" }, { "(1", ") is expected" },
        { "1 2", "nothing more is expected at \"2\"" }, { "q + 1", "no such name at \"q + 1\"" },
        { "f(1)", "no such function" }, { "1 / 0", "division by 0" }, { "5 % 0", "division by 0" },
        { "x[3]", "no such element" }, { "x[-1]", "no such element" }, { "x[0.5]", "no such element" },
        { "mod(1)", ", is expected" }, { "1 ? 2", ": is expected" }, { "1e999", "a number is expected" },
        { "exp(1000)", "it is no number" }, { "sum(k, 0, 1e9, k)", "too long" }, { "sum(1, 0, 2, 1)", "a name" },
        { "block_of(1, 0, 0).count", "one block or more" }, { "block_of(1, 1, 0)", ".start is expected" },
        { "a_name_that_is_much_too_long", "a name is too long" }, { "#", "a number or a name is expected" },
    };
    const struct formula_scope s = some_names(false);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct formula_number n = { 42, true };
        struct error err = { OK, "" };
        assert_int_equal(formula_compute(&s, of[i].formula, &n, &err), ERR_FORMAT);
        if (strstr(err.text, of[i].says) == NULL) fail_msg("%s: %s", of[i].formula, err.text);
        assert_true(n.value == 42);
    }
    char deep[500];
    memset(deep, '(', sizeof deep - 1), deep[sizeof deep - 1] = '\0';
    assert_int_equal(formula_compute(&s, deep, &(struct formula_number){ 0, true }, NULL), ERR_FORMAT);
    memset(deep, '-', sizeof deep - 1);
    assert_int_equal(formula_compute(&s, deep, &(struct formula_number){ 0, true }, NULL), ERR_FORMAT);
}

static void test_too_many_names(void **state)
{
    (void)state;
    struct formula_scope s = { .numbers = 0 };
    char name[8] = "a";
    for (int i = 0; i < FORMULA_NAMES; i++) {
        name[1] = (char)('a' + i / 26), name[2] = (char)('a' + i % 26);
        assert_int_equal(formula_set(&s, name, i, true, NULL), OK);
    }
    assert_int_equal(formula_set(&s, name, 7, true, NULL), OK);         /* it is there */
    assert_int_equal(formula_set(&s, "more", 7, true, NULL), ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators_are_those_of_c), cmocka_unit_test(test_a_formula_divides_without_cutting),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_refusals), cmocka_unit_test(test_too_many_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
