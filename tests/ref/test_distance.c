/* Distances of tensors: against one loop, at lengths around those at which the work is cut. */
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <cmocka.h>

enum { LONGEST = 40001 };
static const int64_t counts[] = { 0, 1, 7, 8, 9, 511, 512, 513, 1031, 32768, 32769, LONGEST };
static const enum dtype formats[] = { F64, F32, BF16, F16 };

/* Whole quarters, so that every square and every sum is exact: at most 1.5 * 64^2 * LONGEST. */
static double value(int64_t i, int which) { return (double)((i * (which ? 37 : 101)) % 257 - 128) / 4; }

static void fill(struct tensor t, int which)
{
    static double x[LONGEST];
    const int64_t n = tensor_count(t);
    for (int64_t i = 0; i < n; i++) x[i] = value(i, which);
    convert_numbers(t.data, t.dtype, x, F64, n);
}

/* Garbage on the stack, where the function keeps its numbers. */
static void __attribute__((noinline)) dirty_the_stack(void)
{
    volatile double garbage[4096];
    for (int i = 0; i < 4096; i++) garbage[i] = NAN;
    (void)garbage[0];
}

static void test_against_one_loop(void **state)
{
    static double first[LONGEST], second[LONGEST];          /* room for any format */
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            for (int how = 0; how < 4; how++) {
                const double divisor = how & 1 ? 4 : 1;
                const struct tensor a = tensor_1d(first, formats[f], counts[k]),
                                    b = how & 2 ? tensor_1d(second, formats[f], counts[k]) : tensor_none;
                double want = 0;
                fill(a, 0);
                if (how & 2) fill(b, 1);
                for (int64_t i = 0; i < counts[k]; i++) {
                    const double far = value(i, 0) / divisor - (how & 2 ? value(i, 1) : 0);
                    want += far * far;
                }
                dirty_the_stack();
                const double is = squared_distance_of_quotient(a, divisor, b);
                if (is != want)
                    fail_msg("%s, %lld elements over %g, %s: %.17g, want %.17g", dtype_name(formats[f]),
                             (long long)counts[k], divisor, how & 2 ? "two tensors" : "one", is, want);
                dirty_the_stack();
                if (divisor == 1) assert_true(squared_distance(a, b) == want);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_against_one_loop) };
    return cmocka_run_group_tests_name("distances", tests, NULL, NULL);
}
