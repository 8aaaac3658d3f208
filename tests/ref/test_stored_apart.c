/* How far two numbers that rounding has parted are from each other once they are stored.
 * tier: check
 */
#include "ref/numeric/distance.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N = 3 };

static double apart(const double x[N], enum dtype t)
{
    double squares = 0;
    for (int i = 0; i < N; i++) squares += x[i] * x[i];
    return relative_when_stored(0, sqrt(squares), N, t);
}

/* A boundary lies between two neighbours of a format: there the two are a whole step of it apart. */
static void test_next_to_a_boundary(void **state)
{
    static const double usual[N] = { 1, -2, 0.5 }, small[N] = { 0x1p-20, -0x1p-21, 0x1.8p-22 };
    (void)state;
    assert_true(fabs(apart(usual, F16) - 2 * dtype_unit(F16)) < 1e-6);
    assert_true(fabs(apart(usual, F32) - 2 * dtype_unit(F32)) < 1e-12);
    double squares = 0;
    for (int i = 0; i < N; i++) squares += small[i] * small[i];
    assert_true(apart(small, F16) >= sqrt(N) * 0x1p-24 / sqrt(squares));        /* all three by 2^-24 */
    assert_true(fabs(apart(small, BF16) - 2 * dtype_unit(BF16)) < 1e-12);
}

static void test_zeros(void **state)
{
    static const double zeros[N] = { 0 };
    (void)state;
    assert_true(apart(zeros, F16) == 2 * dtype_unit(F16));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_next_to_a_boundary), cmocka_unit_test(test_zeros) };
    return cmocka_run_group_tests_name("stored apart", tests, NULL, NULL);
}
