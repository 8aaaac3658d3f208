/* Two numbers that differ are never printed as the same text.
 * tier: check
 */
#include "ref/io/pair.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void expect(char format, int digits, double a, double b, const char *first, const char *second)
{
    const struct pair_text t = pair_text(format, digits, a, b);
    assert_string_equal(t.first, first);
    assert_string_equal(t.second, second);
}

static void test_as_many_digits_as_needed(void **state)
{
    (void)state;
    expect('g', 6, 0.3361361, 0.3361359, "0.3361361", "0.3361359");
    expect('g', 6, 0.336136, 0.25, "0.336136", "0.25");
    expect('e', 2, 1.0004e-6, 1e-6, "1.0004e-06", "1.0000e-06");
    expect('g', 3, 1, nextafter(1, 2), "1", "1.0000000000000002");
    expect('g', 3, 2, 2, "2", "2");
    expect('g', 3, NAN, NAN, "nan", "nan");
    expect('e', 2, INFINITY, 1, "inf", "1.00e+00");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_many_digits_as_needed) };
    return cmocka_run_group_tests_name("pairs of numbers", tests, NULL, NULL);
}
