/* What one operation's rounding allows: sums in random orders and parts stay inside, and not by far. */
#include "ref/numeric/philox.h"
#include "ref/numeric/rounding.h"
#include "ref/numeric/tensor.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

enum { MOST = 3000 };

static uint32_t drawn;

static double draw(void)
{
    const uint32_t counter[4] = { drawn++, 0, 0, 0 }, key[2] = { 7, 11 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return (double)word[0] * 0x1p-31 - 1;
}

/* Store a number in a format. */
static double stored(double x, enum dtype t)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, t, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

static void shuffle(double *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)((draw() + 1) / 2 * i);
        const double t = x[i];
        x[i] = x[j], x[j] = t;
    }
}

/* The sum of n drawn terms, added in format t in a random order, `parts` apart: its error over what is allowed. */
static double ratio_of_sum(int n, enum dtype t, int parts)
{
    static double x[MOST];
    double exact = 0, absolute = 0, got = 0;
    for (int i = 0; i < n; i++) x[i] = stored(draw(), t), exact += x[i], absolute += fabs(x[i]);
    shuffle(x, n);
    for (int p = 0; p < parts; p++) {
        double part = 0;
        for (int i = n * p / parts; i < n * (p + 1) / parts; i++) part = stored(part + x[i], t);
        got = stored(got + part, t);
    }
    return fabs(got - exact) / (rounding_of_sum(dtype_unit(t), n) * absolute);
}

static void sums_stay_inside(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    static const int sizes[] = { 2, 3, 17, 100, MOST };
    double largest = 0;
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int parts = 1; parts <= 8; parts *= 2)
                for (int again = 0; again < 20; again++) {
                    const double ratio = ratio_of_sum(sizes[k], formats[f], parts);
                    if (!(ratio <= 1))
                        fail_msg("%d terms in %s, %d parts: %g times what is allowed", sizes[k],
                                 dtype_name(formats[f]), parts, ratio);
                    largest = fmax(largest, ratio);
                }
    assert_true(largest > 0.25);                /* a bound that nothing comes near finds nothing */
}

/* Of few terms the worst case is allowed, of many the likely one: n u / (1 - n u) = 10 sqrt(n) u near n = 100. */
static void the_smaller_of_two(void **state)
{
    const double u = dtype_unit(F32);
    (void)state;
    assert_float_equal(rounding_of_sum(u, 1) / u, 1, 1e-6);
    assert_float_equal(rounding_of_sum(u, 64) / u, 64, 1e-3);
    assert_float_equal(rounding_of_sum(u, 400) / u, 200, 1e-3);
    assert_float_equal(rounding_of_sum(dtype_unit(BF16), 256), 10 * 16 * dtype_unit(BF16), 1e-9);
    assert_true(rounding_of_sum(u, 0) == 0);
    assert_float_equal(rounding_of_terms(u, 8, 8) / u, 8, 1e-6);        /* one term */
    assert_float_equal(rounding_of_terms(u, 400, 20) / u, 200, 1e-6);   /* 400 equal ones */
}

/* Storing any number, also one that is too small for the format. */
static void storing_stays_inside(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    double largest = 0, smallest = 1;
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const struct rounding r = rounding_of(formats[f], DTYPE_COUNT, 1);
        const int least = formats[f] == F16 ? -27 : -150;
        assert_true(r.sum == dtype_unit(F32) && r.store == dtype_unit(formats[f]));
        for (int e = least; e < 10; e++)
            for (int again = 0; again < 20; again++) {
                const double x = ldexp(draw(), e), ratio = fabs(stored(x, formats[f]) - x) /
                                                           rounding_when_stored(&r, x, 0);
                if (!(ratio <= 1)) fail_msg("%g in %s: %g times what is allowed", x, dtype_name(formats[f]), ratio);
                largest = fmax(largest, ratio), smallest = fmin(smallest, r.tiny);
            }
    }
    assert_true(largest > 0.9);
    assert_true(smallest == 0x1p-150);          /* half of the smallest number of fp32 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_stay_inside),
        cmocka_unit_test(the_smaller_of_two),
        cmocka_unit_test(storing_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
