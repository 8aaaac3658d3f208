/* Functions of ref/exact/ over their ranges: those of functions.h within 2^-44 of the C library's, those of scalars.h
 * within a unit of the last place of long double's; and the bits of both, which are the same on every processor.
 * tier: check
 */
#include "ref/exact/functions.h"
#include "ref/exact/scalars.h"
#include "ref/numeric/philox.h"
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { TRIED = 200000, TRIED_LONG = 20000 };

struct function { const char *name; double (*own)(double), (*library)(double); double from, to; bool logarithmic; };

static double off(const struct function *f, double x)
{
    const double own = f->own(x), want = f->library(x);
    return own == want ? 0 : fabs(own - want) / fabs(want);
}

static void test_within_the_bound(void **state)
{
    static const struct function functions[] = {
        { "log", exact_log, log, -80, 80, true }, { "log near 1", exact_log, log, 0.5, 2, false },
        { "exp", exact_exp, exp, -600, 600, false }, { "tanh", exact_tanh, tanh, -32, 32, false },
        { "tanh near 0", exact_tanh, tanh, -40, 0, true }, { "erfc", exact_erfc, erfc, -6, 9, false },
    };
    (void)state;
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        for (uint64_t i = 0; i < TRIED; i++) {
            const struct function *const f = &functions[k];
            const double at = f->from + (f->to - f->from) * random_uniform(3, k, i), x = f->logarithmic ? exp2(at) : at;
            if (!(off(f, x) < 0x1p-44)) fail_msg("%s(%a) is off by %g", f->name, x, off(f, x));
        }
}

/* ---- scalars ----------------------------------------------------------------------------------------------------- */

static double scalar_sine(double x)
{
    double sine, cosine;
    scalar_turn(x, &sine, &cosine);
    return sine;
}

/* Units of the last place of the nearest fp64 number. */
static double units(double own, long double want)
{
    int exponent;
    (void)frexpl(want, &exponent);
    return own == (double)want && want == 0 ? 0 : (double)(fabsl((long double)own - want) / ldexpl(1, exponent - 53));
}

struct scalar { const char *name; double (*own)(double); long double (*library)(long double); double from, to, most;
                bool logarithmic; };

/* Where long double is fp64, as on macOS, its own error counts, too. */
static double most_of(double units) { return LDBL_MANT_DIG > 60 ? units : units + 1; }

static void test_scalars(void **state)
{
    static const struct scalar scalars[] = {
        { "sine", scalar_sine, sinl, -7, 7, 0.8, false }, { "cosine", scalar_cosine, cosl, -7, 7, 0.8, false },
        { "sine far", scalar_sine, sinl, 0, 1.3e5, 0.8, false },
        { "cosine far", scalar_cosine, cosl, 0, 2e8, 0.8, false },
        { "sine near 0", scalar_sine, sinl, -60, 0, 0.8, true }, { "exp", scalar_exp, expl, -700, 709, 0.51, false },
        { "log", scalar_log, logl, -900, 900, 0.51, true }, { "log near 1", scalar_log, logl, 0.99, 1.01, 0.51, false },
    };
    (void)state;
    for (size_t k = 0; k < sizeof scalars / sizeof *scalars; k++)
        for (uint64_t i = 0; i < TRIED_LONG; i++) {
            const struct scalar *const s = &scalars[k];
            const double at = s->from + (s->to - s->from) * random_uniform(4, k, i), x = s->logarithmic ? exp2(at) : at,
                         far = units(s->own(x), s->library((long double)x));
            if (!(far < most_of(s->most))) fail_msg("%s(%a) is off by %g units", s->name, x, far);
        }
}

/* Corrections of an optimizer, beta^t; frequencies of rotary positions, theta^(2 i / R). */
static void test_powers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < TRIED_LONG; i++) {
        const double u = random_uniform(5, 1, i), v = random_uniform(5, 2, i),
                     x = i % 2 ? 1 - u * u * u : 1 + 1e7 * u, y = i % 2 ? 1 + floor(2000 * v) : v;
        const long double want = powl((long double)x, (long double)y);
        if (want < 1e-300L) continue;
        const double far = units(scalar_power(x, y), want);
        if (!(far < most_of(0.51))) fail_msg("%a^%a is off by %g units", x, y, far);
    }
    assert_true(scalar_power(2, -1) == 0.5 && scalar_power(3, 4) == 81 && scalar_power(10000, 0.5) == 100);
    assert_true(scalar_power(0.9, 0) == 1 && scalar_power(0, 3) == 0 && scalar_power(0.95, 1e6) == 0);
    assert_true(isnan(scalar_power(-1, 2)) && isinf(scalar_power(10, 400)) && isinf(scalar_power(0, -1)));
    assert_true(scalar_power(0.5, 1074) == 0x1p-1074);
}

static void test_ends(void **state)
{
    (void)state;
    assert_true(exact_log(1) == 0 && exact_log(0) == -(double)INFINITY);
    assert_true(isnan(exact_log(-1)) && isnan(exact_log(NAN)));
    assert_true(exact_exp(0) == 1 && exp_x32(-200) == 0 && isinf(exp_x32(90)) && exact_log(INFINITY) > 1e300);
    assert_true(exact_tanh(0) == 0 && exact_tanh(50) == 1 && exact_tanh(-50) == -1 && isnan(exact_tanh(NAN)));
    assert_true(exact_erfc(0) == 1 && exact_erfc(40) == 0 && exact_erfc(-40) == 2 && isnan(exact_erfc(NAN)));
    assert_true(scalar_sine(0) == 0 && scalar_cosine(0) == 1 && isnan(scalar_cosine(NAN)));
    assert_true(scalar_log(1) == 0 && isinf(scalar_log(0)) && isnan(scalar_log(-1)) && scalar_exp(0) == 1);
    assert_true(isinf(scalar_exp(710)) && scalar_exp(-800) == 0 && isnan(scalar_exp(NAN)));
}

/* ---- the same bits everywhere ------------------------------------------------------------------------------------ */

static uint64_t mixed(uint64_t hash, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (hash ^ bits) * 0x100000001b3;
}

/* The bits of many results, found on one processor: a fused multiply-add, or a function of the C library, shows. */
static void test_bits(void **state)
{
    uint64_t fp32 = 0, fp64 = 0;
    (void)state;
    for (uint64_t i = 0; i < TRIED_LONG; i++) {
        const double u = random_uniform(6, 1, i), x = 40 * u - 20, positive = exp_x32((float)x);
        fp32 = mixed(mixed(fp32, exact_log(u + 0x1p-30)), exact_exp(x));
        fp32 = mixed(mixed(fp32, exact_tanh(x)), exact_erfc(x / 4));
        fp64 = mixed(mixed(fp64, scalar_sine(1000 * x)), scalar_cosine(1000 * x));
        fp64 = mixed(mixed(fp64, scalar_power(positive, u)), scalar_exp(x));
    }
    if (fp32 != 0x8eae7ac2936b4f41 || fp64 != 0x5725391311550c1f)
        fail_msg("other bits: %#llx of functions.h, %#llx of scalars.h", (unsigned long long)fp32,
                 (unsigned long long)fp64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_the_bound), cmocka_unit_test(test_scalars), cmocka_unit_test(test_powers),
        cmocka_unit_test(test_ends), cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
