/* Functions of ref/exact/functions.h against the C library's, over their ranges: within 2^-44, relative.
 * tier: check
 */
#include "ref/exact/functions.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { TRIED = 200000 };

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

static void test_ends(void **state)
{
    (void)state;
    assert_true(exact_log(1) == 0 && exact_log(0) == -(double)INFINITY);
    assert_true(isnan(exact_log(-1)) && isnan(exact_log(NAN)));
    assert_true(exact_exp(0) == 1 && exp_x32(-200) == 0 && isinf(exp_x32(90)) && exact_log(INFINITY) > 1e300);
    assert_true(exact_tanh(0) == 0 && exact_tanh(50) == 1 && exact_tanh(-50) == -1 && isnan(exact_tanh(NAN)));
    assert_true(exact_erfc(0) == 1 && exact_erfc(40) == 0 && exact_erfc(-40) == 2 && isnan(exact_erfc(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_within_the_bound), cmocka_unit_test(test_ends) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
