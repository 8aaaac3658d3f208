/* What a failure looks like, in words.
 * tier: check
 */
#include "emulated_devices/check/report/diagnose.h"

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
            evidence_add(&e, r, wrong(mesh_coordinate(m, r, DP), mesh_coordinate(m, r, TP)),
                         (struct scale){ factor, residual }, 1);
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
        { all, "pp=1, any dp, any tp" }, { second_tp, "tp=1, pp=1, any dp" },
        { not_first_tp, "any tp but 0, pp=1, any dp" },
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
        { 3, 0, "expected times 3.0000 = tp" }, { 1.0 / 3, 1e-6, "expected times 0.3333 = 1/tp" },
        { 9, 0, "expected times 9.0000 = tp^2" },
        { 2, 0, "expected times 2.0000 = pp or dp" }, { 6, 0, "expected times 6.0000 = (pp tp) or (dp tp)" },
        { 5, 0, "expected times 5.0000 = M" }, { 1.41421356, 0, "expected times 1.4142 = sqrt(pp) or sqrt(dp)" },
        { -1, 0, "expected times -1.0000" },
        { 0, 0, "zero" }, { 1.7, 0, "expected times 1.7000" }, { 3, 0.5, "" }, { 3, NAN, "" }, { NAN, NAN, "" },
        { -3, 0, "expected times -3.0000 = -tp" }, { 0.2, 0, "expected times 0.2000 = 1/M" },
        { 25, 0, "expected times 25.0000 = M^2" },
        { 1024, 0, "expected times 1024.0000 = 1024, a loss scale that is not divided out" },
        { -1. / 65536, 0, "expected times -1.526e-05 = -1/65536, a loss scale that is divided out twice, "
          "or a mean in place of a sum" },
        { 8, 0, "expected times 8.0000" }, { 1030, 0, "expected times 1030.0000" },
        { 1. / 9, 0, "expected times 0.1111 = 1/tp^2" }, { 0.57735027, 0, "expected times 0.5774 = 1/sqrt(tp)" },
        { 1. / 6, 0, "expected times 0.1667 = 1/(pp tp) or 1/(dp tp)" }, { 1, 0, "" }, { 1.0009, 0, "" },
        { 1.0011, 0, "expected times 1.0011" },
        { 3 * 1.0009, 0, "expected times 3.0027 = tp" }, { 3 * 1.0011, 0, "expected times 3.0033" },
        { 3 * 0.9989, 0, "expected times 2.9967" },
        { 3, 0.99e-3, "expected times 3.0000 = tp" }, { 3, 1.01e-3, "" }, { 1000, 0.5, "" },
        { 1. / 3, 0.99e-3, "expected times 0.3333 = 1/tp" },
        { 1e14, 0, "expected times 100000000000000.0000" }, { 1e15, 0, "" }, { INFINITY, 0, "" },
    };
    char text[128];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct evidence e = seen(&m, all, want[i].factor, want[i].residual);
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), want[i].words);
    }
}

/* In 16 bits a constant factor leaves what rounding does, and is off by some of it;
 * a bound that is wide explains nothing. */
static void test_rounded_factors(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    const struct { double factor, residual, rounding; const char *words; } want[] = {
        { 2.992, 0.02, 0.03, "expected times 2.9920 = tp" }, { 2.992, 0.02, 0.001, "" },
        { 2.9, 0.02, 0.03, "expected times 2.9000" },
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
    for (int r = 0; r < m.devices; r++)
        evidence_add(&e, r, true, (struct scale){ parts[mesh_coordinate(&m, r, TP)], 0.6 }, 1);
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e),
                        "a part of a sum: over tp the parts add up to what is expected");
    e.factor[4] += 1e-3;
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), "");
}

/* Devices whose factors differ have none in common, in whatever order they come. */
static void test_factors_that_differ(void **state)
{
    (void)state;
    static const double factors[][4] = { { 2, 3, 2, 2 },   { 3, 2, 2, 2 },   { 2, 2, 2, 3 },    { 2, -2, 2, 2 },
                                         { 2, NAN, 2, 2 }, { NAN, 2, 2, 2 }, { 2, 2.003, 2, 2 } };
    struct mesh m;
    char text[128];
    const int size[AXIS_COUNT] = { [DP] = 2, [TP] = 2, [PP] = 1, [CP] = 1, [EP] = 1 };
    assert_int_equal(mesh_make(&m, size, NULL), OK);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        struct evidence e = { 0 };
        for (int r = 0; r < 4; r++) evidence_add(&e, r, true, (struct scale){ factors[i][r], 0 }, 1);
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 1, &e), "");
    }
    struct evidence e = { 0 };
    /* one that holds has no say */
    for (int r = 0; r < 4; r++) evidence_add(&e, r, r > 0, (struct scale){ r > 0 ? 2 : 1, 0 }, 1);
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 1, &e), "expected times 2.0000 = dp or tp");
    e = (struct evidence){ .rounding = 0.01 };
    for (int r = 0; r < 4; r++) evidence_add(&e, r, true, (struct scale){ 2 + 0.004 * r, 0.005 }, 1);
    assert_string_equal(diagnose_scale(text, sizeof text, &m, 1, &e), "expected times 2.0000 = dp or tp");
}

/* The worst residual of all failing devices counts, wherever it comes. */
static void test_residual_of_all(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    char text[128];
    for (int at = 0; at < 4; at++) {
        struct evidence e = { 0 };
        for (int r = 0; r < 4; r++) evidence_add(&e, r, true, (struct scale){ 3, r == at ? 0.01 : 0 }, 1);
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), "");
    }
}

/* Sums that almost add up, of parts of different tensors, or of which one is nowhere. */
static void test_sums_that_do_not_add_up(void **state)
{
    (void)state;
    static const char over_tp[] = "a part of a sum: over tp the parts add up to what is expected";
    static const char over_dp[] = "a part of a sum: over dp the parts add up to what is expected";
    const struct { double off, truth; int left_out; enum axis over; const char *words; } cases[] = {
        { 0, 1, -1, TP, over_tp }, { 0.9e-5, 1, -1, TP, over_tp }, { -0.9e-5, 1, -1, TP, over_tp },
        { 1.1e-5, 1, -1, TP, "" },
        { -1.1e-5, 1, -1, TP, "" }, { 0, 1.002, -1, TP, "" }, { 0, 1, 4, TP, "" }, { 0, 1, -1, DP, over_dp },
        { 0, NAN, -1, TP, "" },
    };
    const struct mesh m = mesh_2x3x2();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct evidence e = { 0 };
        char text[128];
        for (int r = 0; r < m.devices; r++) {
            const int part = mesh_coordinate(&m, r, cases[i].over);
            const double factor = cases[i].over == DP ? (part ? 0.75 : 0.25)
                                  : part == 0         ? 0.125
                                  : part == 1         ? 0.625
                                                      : 0.25;
            if (r != cases[i].left_out)
                evidence_add(&e, r, true, (struct scale){ factor + (r == m.devices - 1 ? cases[i].off : 0), 0.6 },
                             r == m.devices - 1 ? cases[i].truth : 1);
        }
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), cases[i].words);
    }
}

/* A single number is a multiple of every other: only a size says something.  Of two losses 2 is one. */
static void test_numbers(void **state)
{
    (void)state;
    const struct mesh m = mesh_2x3x2();
    const struct { double factor; bool sides; const char *words; } cases[] = {
        { 1.7, false, "" }, { 3, false, "expected times 3.0000 = tp" },
        { 2, true, "expected times 2.0000 = pp or dp or sides" }, { 7, true, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        struct evidence e = seen(&m, all, cases[i].factor, 0);
        e.number = true, e.sides = cases[i].sides;
        assert_string_equal(diagnose_scale(text, sizeof text, &m, 5, &e), cases[i].words);
    }
}

static bool some_dp(int dp, int tp) { (void)tp; return dp == 1 || dp == 3; }
static bool not_one(int dp, int tp) { (void)tp; return dp != 2; }
static bool all_but_two(int dp, int tp) { return !(dp == 2 && tp == 1); }

static void test_more_places(void **state)
{
    (void)state;
    const int size[AXIS_COUNT] = { [DP] = 4, [TP] = 2, [PP] = 2, [CP] = 1, [EP] = 1 };
    const struct { bool (*wrong)(int, int); const char *words; } want[] = {
        { some_dp, "dp=1+3, pp=1, any tp" }, { not_one, "any dp but 2, pp=1, any tp" }, { all, "pp=1, any dp, any tp" },
    };
    struct mesh m, alone;
    char text[128];
    assert_int_equal(mesh_make(&m, size, NULL), OK);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct evidence e = seen(&m, want[i].wrong, 2, 0);
        assert_string_equal(diagnose_place(text, sizeof text, &m, &e), want[i].words);
    }
    const struct evidence e = seen(&m, all_but_two, 2, 0);
    assert_memory_equal(diagnose_place(text, sizeof text, &m, &e), "devices ", 8);
    const int one[AXIS_COUNT] = { [DP] = 1, [TP] = 1, [PP] = 1, [CP] = 1, [EP] = 1 };
    assert_int_equal(mesh_make(&alone, one, NULL), OK);
    assert_string_equal(diagnose_place(text, sizeof text, &alone, &e), "the only device");
}

static void test_sets_of_devices(void **state)
{
    (void)state;
    static const int ranks[] = { 0, 63, 64, 129, MESH_MOST_LISTED - 1 };
    struct devices s = { { 0 } };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(devices_count(&s), i);
        assert_false(devices_have(&s, ranks[i]));
        devices_add(&s, ranks[i]), devices_add(&s, ranks[i]);
        assert_true(devices_have(&s, ranks[i]));
    }
    assert_false(devices_have(&s, 1) || devices_have(&s, 65) || devices_have(&s, 128));
}

static void test_scale_of(void **state)
{
    (void)state;
    const struct scale minus = scale_of(9 * 2, -3 * 2, 2), some = scale_of(2, 1, 1), above = scale_of(1, 1 + 1e-15, 1),
                       zero = scale_of(0, 0, 1);
    assert_true(minus.factor == -3 && minus.residual == 0);
    assert_true(some.factor == 1 && some.residual == sqrt(0.5));       /* (1, 1) beside (1, 0) */
    assert_true(above.residual == 0);
    assert_true(zero.factor == 0 && zero.residual == 0);
    const struct scale two = scale_of(4 * 5, 2 * 5, 5), none = scale_of(1, 0, 1), nothing = scale_of(1, 0, 0);
    assert_true(two.factor == 2 && two.residual == 0);
    assert_true(none.factor == 0 && none.residual == 1);
    assert_true(isnan(nothing.factor));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places), cmocka_unit_test(test_more_places), cmocka_unit_test(test_sets_of_devices),
            cmocka_unit_test(test_factors),
        cmocka_unit_test(test_factors_that_differ), cmocka_unit_test(test_residual_of_all),
            cmocka_unit_test(test_rounded_factors),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_missing_sum),
            cmocka_unit_test(test_sums_that_do_not_add_up),
        cmocka_unit_test(test_scale_of),
    };
    return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
