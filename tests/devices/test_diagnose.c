/* What a failure looks like, in words.
 * tier: check
 */
#include "emulated_devices/verify/diagnose.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct mesh mesh_2x3x2(void)
{
    struct mesh m;
    const int size[AXIS_COUNT] = { [DP] = 2, [TP] = 3, [PP] = 2, [CP] = 1, [EP] = 1 };
    assert_int_equal(mesh_make(&m, size, NULL), OK);
    return m;
}

/* pp=1 holds the tensor; a device fails with this factor if `wrong` says so. */
static struct evidence seen(const struct mesh *m, bool (*wrong)(int dp, int tp), double factor, double residual)
{
    struct evidence e = { 0 };
    for (int r = 0; r < m->devices; r++)
        if (mesh_coordinate(m, r, PP) == 1)
            evidence_add(&e, r, wrong(mesh_coordinate(m, r, DP), mesh_coordinate(m, r, TP)), (struct scale){ factor, residual }, 1);
    return e;
}

static bool all(int dp, int tp) { (void)dp, (void)tp; return true; }
static bool second_tp(int dp, int tp) { (void)dp; return tp == 1; }
static bool not_first_tp(int dp, int tp) { (void)dp; return tp > 0; }
static bool corner(int dp, int tp) { return dp == 1 && tp == 2; }
static bool diagonal(int dp, int tp) { return dp == tp; }

static void test_places(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    const struct { bool (*wrong)(int, int); const char *words; } want[] = {
        { all, "pp=1, any dp, any tp" }, { second_tp, "tp=1, pp=1, any dp" }, { not_first_tp, "any tp but 0, pp=1, any dp" },
        { corner, "dp=1, tp=2, pp=1" }, { diagonal, "devices 6 10" },
    };
    char text[128];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct evidence e = seen(&m, want[i].wrong, 2, 0);
        assert_string_equal(diagnose_place(text, sizeof text, &m, &e), want[i].words);
    }
}

static void test_factors(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    const struct { double factor, residual; const char *words; } want[] = {
        { 3, 0, "expected times 3.0000 = tp" }, { 1.0 / 3, 1e-6, "expected times 0.3333 = 1/tp" }, { 9, 0, "expected times 9.0000 = tp^2" },
        { 2, 0, "expected times 2.0000 = pp or dp" }, { 6, 0, "expected times 6.0000 = (pp tp) or (dp tp)" },
        { 5, 0, "expected times 5.0000 = M" }, { 1.41421356, 0, "expected times 1.4142 = sqrt(pp) or sqrt(dp)" }, { -1, 0, "expected times -1.0000" },
        { 0, 0, "zero" }, { 1.7, 0, "expected times 1.7000" }, { 3, 0.5, "" }, { 3, NAN, "" }, { NAN, NAN, "" },
    };
    char text[128];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct evidence e = seen(&m, all, want[i].factor, want[i].residual);
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), want[i].words);
    }
}

/* In 16 bits a constant factor leaves what rounding does, and is off by some of it; a bound that is wide explains nothing. */
static void test_rounded_factors(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    const struct { double factor, residual, rounding; const char *words; } want[] = {
        { 2.992, 0.02, 0.03, "expected times 2.9920 = tp" }, { 2.992, 0.02, 0.001, "" }, { 2.9, 0.02, 0.03, "expected times 2.9000" },
        { 2.992, 0.4, 0.9, "" },
    };
    char text[128];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct evidence e = seen(&m, all, want[i].factor, want[i].residual);
        e.rounding = want[i].rounding;
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), want[i].words);
    }
}

/* Each device has a part of a sum over tp: no constant factor, but parts that add up. */
static void test_missing_sum(void **state)
{
    (void)state;
    static const double parts[] = { 0.2, 0.5, 0.3 };
    const struct mesh m = mesh_2x3x2();
    struct evidence e = { 0 };
    char text[128];
    for (int r = 0; r < m.devices; r++) evidence_add(&e, r, true, (struct scale){ parts[mesh_coordinate(&m, r, TP)], 0.6 }, 1);
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), "a part of a sum: over tp the parts add up to what is expected");
    e.factor[4] += 1e-3;
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), "");
}

static void test_scale_of(void **state)
{
    (void)state;
    const struct scale two = scale_of(4 * 5, 2 * 5, 5), none = scale_of(1, 0, 1), nothing = scale_of(1, 0, 0);
    assert_true(two.factor == 2 && two.residual == 0);
    assert_true(none.factor == 0 && none.residual == 1);
    assert_true(isnan(nothing.factor));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places), cmocka_unit_test(test_factors), cmocka_unit_test(test_rounded_factors), cmocka_unit_test(test_missing_sum), cmocka_unit_test(test_scale_of),
    };
    return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
