/* Errors beside bounds, by hand: sums, borders, NaN, the worst, the first, on which devices.  That all of a run is
 * compared: test_probe.c.
 * tier: check
 */
#include "emulated_devices/verify/reference/comparison.h"
#include "ref/numeric/distance.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct comparison c;

static int forget(void **state)
{
    (void)state;
    c = (struct comparison){ 0 };
    return 0;
}

/* The numbers here are powers of two and their multiples: every sum and root is exact, so == and the
 * border are meant. */
static struct sums differ_by(double error)
{
    return (struct sums){ .difference = error * error, .elements = 1, .expected = 1 };
}

#define SMALL 0x1p-10                  /* bounds of so many are small enough to call what exceeds them wrong */

/* A gradient on one device, of norm 1; error and bound in units of SMALL. */
static void hold(const char *tensor, int rank, double error, double bound)
{
    struct worst found = { .bound = bound * SMALL, .rank = rank, .step = 1 };
    const struct sums s = differ_by(error * SMALL);
    snprintf(found.tensor, sizeof found.tensor, "%s", tensor);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 1);
}

static bool holds(double error, double bound)
{
    c = (struct comparison){ 0 };
    hold("w", 0, error, bound);
    assert_int_equal(c.compared, 1);
    assert_int_equal(c.wrong, c.failed);
    return !c.failed;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void test_exceeds(void **state)
{
    (void)state;
    assert_true(exceeds(2, 1) && exceeds(NAN, 1) && exceeds(NAN, INFINITY) && exceeds(INFINITY, 1) && exceeds(-1, -2));
    assert_false(exceeds(1, 1) || exceeds(1, 2) || exceeds(1, NAN) || exceeds(NAN, NAN) || exceeds(INFINITY, NAN));
}

static void test_sums(void **state)
{
    (void)state;
    double a[] = { 9, 9, 1, -2, 3 }, t[] = { 9, 1, 1, -5 };
    float f[] = { 9, 9, 1, -2, 3 };
    const struct tensor truth = tensor_1d(t, F64, 4);
    const struct tensor actual[] = { tensor_1d(a, F64, 5), tensor_1d(f, F32, 5) };
    for (int i = 0; i < 2; i++) {
        struct sums s = { .expected = 3 };
        sums_add(&s, actual[i], 2, truth, 1, 3);                /* 1, -2, 3 beside 1, 1, -5 */
        assert_true(s.difference == 0 + 9 + 64 && s.actual == 14 && s.product == 1 - 2 - 15 && s.truth == 27 &&
                    s.elements == 3);
        sums_add(&s, actual[i], 0, truth, 0, 1);                /* 9 beside 9 */
        assert_true(s.difference == 73 && s.actual == 95 && s.product == 65 && s.truth == 108 && s.elements == 4);
        assert_true(sums_scale(&s).factor == 65. / 108);
    }
}

static void test_error_of_sums(void **state)
{
    (void)state;
    const struct { struct sums s; double size, error; } cases[] = {
        { { .difference = 9, .elements = 1, .expected = 1 }, 4, 0.75 },
        { { .difference = 9, .elements = 1, .expected = 1 }, 0, INFINITY },
        { { .difference = 0, .elements = 1, .expected = 1 }, 0, 0 },
        { { .difference = 0, .elements = 0, .expected = 0 }, 1, 0 },
        { { .difference = 0, .elements = 1, .expected = 2 }, 1, NAN },
        { { .difference = 0, .elements = 2, .expected = 1 }, 1, NAN },
        { { .difference = NAN, .elements = 1, .expected = 1 }, 1, NAN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double error = sums_error(&cases[i].s, cases[i].size);
        if (!(isnan(cases[i].error) ? isnan(error) : error == cases[i].error))
            fail_msg("case %zu: %g, want %g", i, error, cases[i].error);
    }
}

/* One element of many, at either end or between, NaN or off:
 * nothing is passed over, and opposite differences do not cancel. */
static void test_every_element_counts(void **state)
{
    (void)state;
    enum { N = 5 };
    for (int at = 0; at < N; at++) {
        double t[N] = { 1, 2, 3, 4, 5 }, a[N] = { 1, 2, 3, 4, 5 };
        struct sums off = { .expected = N }, nan = { .expected = N }, both = { .expected = N };
        const struct tensor truth = tensor_1d(t, F64, N), actual = tensor_1d(a, F64, N);
        a[at] = t[at] - 2;
        sums_add(&off, actual, 0, truth, 0, N);
        assert_true(sums_error(&off, 1) == 2);
        a[(at + 1) % N] += 2;
        sums_add(&both, actual, 0, truth, 0, N);
        assert_true(both.difference == 8);
        a[at] = NAN;
        sums_add(&nan, actual, 0, truth, 0, N);
        assert_true(isnan(sums_error(&nan, 1)));
    }
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

static void test_border(void **state)
{
    (void)state;
    assert_true(holds(0.25, 0.25));
    assert_false(holds(0.25 * (1 + 0x1p-20), 0.25));
    assert_false(holds(0.25 * 1.005, 0.25));
    assert_true(holds(0.25 * 0.995, 0.25));
    assert_true(holds(0, 0));
    assert_false(holds(0x1p-60, 0));
    assert_false(holds(NAN, 0.25));
    assert_false(holds(INFINITY, 0.25));
}

static void test_error_is_of_the_whole(void **state)
{
    (void)state;
    struct worst found = { .tensor = "w", .bound = 0x1p-4, .rank = 3, .step = 2 };
    const struct sums s = { .difference = 4, .actual = 25, .product = 15, .truth = 9, .elements = 7, .expected = 7 };
    comparison_tensor(&c, &c.weight, "weight", found, &s, 64);
    assert_true(c.weight.error == 2. / 64 && c.weight.bound == 0x1p-4 && c.weight.ratio == 0.5 && c.weight.truth == 9);
    assert_true(c.weight.scale.factor == 15. / 9 && c.weight.scale.residual == 0);
    assert_true(c.weight.rank == 3 && c.weight.step == 2 && !c.failed && c.largest.error == 2. / 64);
    comparison_tensor(&c, &c.weight, "weight", found, &s, 16);
    assert_true(c.failed && c.first.error == 0.125 && c.first.ratio == 2 && c.compared == 2 && c.wrong == 1);
}

static void test_missing_elements(void **state)
{
    (void)state;
    struct worst found = { .tensor = "w", .bound = 0.25 };
    const struct sums s = { .elements = 6, .expected = 7 };
    comparison_tensor(&c, &c.weight, "weight", found, &s, 1);
    assert_true(c.failed && isnan(c.first.error));
}

/* ---- single numbers ---------------------------------------------------------------------------------------------- */

static bool number_holds(double actual, double truth, double bound)
{
    c = (struct comparison){ 0 };
    comparison_number(&c, &c.loss, "loss", actual, truth, bound, (struct worst){ .step = 1 });
    return !c.failed;
}

static void test_numbers(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_true(number_holds(sign * 4.25, sign * 4, 0.25) && number_holds(sign * 3.75, sign * 4, 0.25));
        assert_false(number_holds(sign * 4.2578125, sign * 4, 0.25) || number_holds(sign * 3.7421875, sign * 4, 0.25));
        assert_false(number_holds(-sign * 4, sign * 4, 0.25));
    }
    assert_true(number_holds(0, 0, 0) && number_holds(0, 0, 0.5) && number_holds(4, 4, 0));
    assert_false(number_holds(1, 0, 0.5) || number_holds(NAN, 4, 0.5) || number_holds(INFINITY, 4, 0.5));
    assert_false(number_holds(8, 4, 0.25));
    assert_true(c.number && c.where.on.number && c.first.error == 1 && c.first.bound == 0.0625 &&
                c.first.scale.factor == 2);
    assert_string_equal(c.first.tensor, "loss");
}

/* A truth that is not finite asks for as much of the devices; from then on only numbers are compared. */
static void test_divergence(void **state)
{
    (void)state;
    assert_true(number_holds(NAN, INFINITY, 0.5) && c.diverged && number_holds(INFINITY, NAN, NAN) && c.diverged);
    assert_false(number_holds(4, NAN, 0.5) || number_holds(4, INFINITY, 0.5));
    assert_true(number_holds(5, 4, NAN) && c.diverged && c.compared == 0);     /* its twin diverges: rounding decides */

    const double sizes[] = { NAN, INFINITY, 1 }, bounds[] = { 0.5, 0.5, INFINITY };
    for (int i = 0; i < 3; i++) {
        struct worst found = { .tensor = "h", .bound = bounds[i], .step = 3 };
        const struct sums s = differ_by(100);
        char name[64];
        c = (struct comparison){ 0 };
        comparison_tensor(&c, &c.activation, "activation", found, &s, sizes[i]);
        assert_true(c.diverged && !c.failed && c.compared == 0 && c.divergence.step == 3);
        assert_string_equal(spread_name(name, sizeof name, &c.divergence), "activation h");
        hold("w", 0, 100, 0.5);
        assert_true(!c.failed && c.compared == 0);
        comparison_number(&c, &c.norm, "norm", 1, NAN, 0.5, (struct worst){ .step = 3 });
        assert_true(c.failed);
    }
}

static void test_zero_truth(void **state)
{
    (void)state;
    struct worst found = { .tensor = "w", .bound = NAN };                           /* 0 / 0, say */
    struct sums s = differ_by(0);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 0);
    assert_true(!c.diverged && !c.failed && c.compared == 1);
    s = differ_by(0x1p-60);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 0);
    assert_true(!c.diverged && c.failed);
    for (int k = -1; k <= 1; k++) {                 /* where the twin is no zero either, its distance bounds ours */
        c = (struct comparison){ 0 };
        found.bound = relative_or_absolute(0x1p-60, 0, 1, F64);
        s = differ_by(ldexp(1, -60 + k));
        comparison_tensor(&c, &c.gradient, "gradient", found, &s, 0);
        assert_int_equal(c.failed, k > 0);
    }
    /* A number of 0, as a loss of rewards may be: its bound is absolute, and holds it. */
    assert_true(number_holds(0x1p-30, 0, 0x1p-29) && number_holds(-0x1p-29, 0, 0x1p-29) && number_holds(0, 0, 0));
    assert_false(number_holds(0x1p-28, 0, 0x1p-29) || number_holds(0x1p-28, 0, 0) || number_holds(NAN, 0, 1));
    assert_true(relative_or_absolute(0, 0, 1, F32) == 0);
    assert_true(relative_or_absolute(0x1p-20, 0, 4, F16) == 0x1p-20 + 0x1p-23);
    assert_true(relative_or_absolute(3, 2, 4, F32) == relative_when_stored(3, 2, 4, F32));
}

static void test_skipped_step(void **state)
{
    (void)state;
    comparison_step(&c, true);
    comparison_number(&c, &c.norm, "norm", NAN, NAN, NAN, (struct worst){ .step = 1 });
    assert_true(c.diverged && c.passing);
    comparison_step(&c, false);
    assert_true(!c.diverged && !c.passing);
    comparison_number(&c, &c.norm, "norm", NAN, NAN, NAN, (struct worst){ .step = 2 });
    comparison_step(&c, false);
    assert_true(c.diverged);
}

/* ---- the worst, and the first ------------------------------------------------------------------------------------ */

static void test_worst_is_by_ratio(void **state)
{
    (void)state;
    hold("a", 0, 0.5, 1);
    hold("b", 1, 0.25, 0.25);                                   /* less of an error, more of its bound */
    hold("c", 2, 0.25, 0.25);
    assert_string_equal(c.gradient.tensor, "b");
    assert_int_equal(c.gradient.rank, 1);
    assert_true(c.gradient.ratio == 1 && c.largest.error == 0.5 * SMALL);
    assert_true(!c.failed && c.compared == 3 && c.wrong == 0);
    assert_true(c.loss.tensor[0] == 0 && c.weight.tensor[0] == 0);
}

/* NaN is larger than anything that comes after it. */
static void test_nan_stays(void **state)
{
    (void)state;
    hold("a", 0, 0.5, 1);
    hold("a", 1, NAN, 1);
    hold("a", 2, 8, 1);
    hold("b", 0, 0.5, 1);
    assert_true(c.failed && isnan(c.first.ratio) && c.first.rank == 1);
    assert_true(isnan(c.gradient.ratio) && isnan(c.largest.error) && isnan(comparison_ratio(&c)));
    assert_int_equal(c.wrong, 2);
    assert_false(signbit(c.first.error));
}

/* The first tensor that fails is named, of its devices the worst; what fails later is only counted. */
static void test_first(void **state)
{
    (void)state;
    hold("a", 0, 0.5, 1);
    hold("b", 0, 1, 1);
    hold("b", 1, 2, 1);
    hold("b", 2, 4, 1);
    hold("b", 3, 3, 1);
    hold("c", 3, 64, 1);
    struct worst next = { .tensor = "b", .bound = SMALL, .rank = 4, .step = 2 };    /* the same in the next step */
    const struct sums s = differ_by(128 * SMALL);
    comparison_tensor(&c, &c.gradient, "gradient", next, &s, 1);
    assert_string_equal(c.first.tensor, "b");
    assert_string_equal(c.first_kind, "gradient");
    assert_string_equal(c.before, "gradient a");
    assert_true(c.first.rank == 2 && c.first.ratio == 4 && c.first.step == 1 && !c.number && !c.excess);
    assert_true(c.wrong == 5 && c.compared == 7 && c.largest.error == 128 * SMALL);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(devices_have(&c.where.on.holding, r), r < 4);
        assert_int_equal(devices_have(&c.where.on.failing, r), r >= 1 && r < 4);
    }
}

/* A device on which the tensor holds comes after one on which it does not. */
static void test_holders_after_the_failure(void **state)
{
    (void)state;
    hold("b", 0, 2, 1);
    hold("b", 1, 0, 1);
    assert_true(devices_count(&c.where.on.holding) == 2 && devices_count(&c.where.on.failing) == 1);
    assert_true(c.where.on.rounding == SMALL);
    assert_string_equal(c.before, "");
}

static void test_every_kind_is_reported(void **state)
{
    (void)state;
    const struct { size_t at; const char *name; } kinds[] = {
        { offsetof(struct comparison, activation), "activations" }, { offsetof(struct comparison, loss), "loss" },
        { offsetof(struct comparison, activation_gradient), "their gradients" },
        { offsetof(struct comparison, gradient), "gradients" },
        { offsetof(struct comparison, quantised), "as quantised" }, { offsetof(struct comparison, norm), "norm" },
        { offsetof(struct comparison, weight), "weights" }, { offsetof(struct comparison, state), "states" },
    };
    const int count = (int)(sizeof kinds / sizeof *kinds);
    const char *name;
    for (int i = 0; i < count; i++) {
        c = (struct comparison){ .gradient.ratio = 0.5 };
        ((struct worst *)((char *)&c + kinds[i].at))->ratio = 0.75;
        assert_true(comparison_ratio(&c) == 0.75);
        assert_true(comparison_kind(&c, i, &name)->ratio == 0.75);
        assert_string_equal(name, kinds[i].name);
    }
    assert_null(comparison_kind(&c, count, &name));
}

/* ---- what quantising has done ------------------------------------------------------------------------------------ */

static bool excess_holds(double a, double b, double d)
{
    double x[] = { a, b, d };
    struct worst found = { .tensor = "w", .rank = 2, .step = 1 };
    comparison_excess(&c, found, tensor_1d(x, F64, 3));
    const bool held = !c.failed;
    assert_true(c.compared == 1 && c.largest.error == 0 && c.excess == !held);
    c = (struct comparison){ 0 };
    return held;
}

static void test_excess(void **state)
{
    (void)state;
    const double above = 1 + DBL_EPSILON;
    assert_true(excess_holds(1, 0, 0) && excess_holds(0, 1, 0) && excess_holds(0, 0, 1) && excess_holds(1, 1, 1));
    assert_false(excess_holds(above, 0, 0) || excess_holds(0, above, 0) || excess_holds(0, 0, above) ||
                 excess_holds(1.01, 1, 0));
    assert_false(excess_holds(NAN, 0.5, 0.5) || excess_holds(0.5, NAN, 0.5) || excess_holds(0.5, 0.5, NAN));
    assert_false(excess_holds(INFINITY, NAN, 0.5));
    double wrong[] = { 2 };
    struct worst found = { .tensor = "w" };
    c.diverged = true;
    comparison_excess(&c, found, tensor_1d(wrong, F64, 1));
    assert_false(c.failed);
}

/* ---- in words ---------------------------------------------------------------------------------------------------- */

static struct plan plan_2x3(void)
{
    struct plan p = { .micros = 5 };
    const int size[AXIS_COUNT] = { [DP] = 2, [TP] = 3, [PP] = 1, [CP] = 1, [EP] = 1 };
    assert_int_equal(mesh_make(&p.mesh, size, NULL), OK);
    return p;
}

static void expect_words(const char *want)
{
    const struct plan p = plan_2x3();
    char text[400];
    assert_string_equal(comparison_describe(text, sizeof text, &c, &p), want);
}

static void test_words(void **state)
{
    (void)state;
    for (int r = 0; r < 6; r++) {
        const bool wrong = r % 3 == 1;
        struct worst found = { .tensor = "h.0.ln_1.bias", .bound = 0.0625, .rank = r, .step = 7 };
        const double factor = wrong ? 2 : 1;
        const struct sums s = { .difference = wrong ? 4 : 0,
                                .actual = 4 * factor * factor,
                                .product = 4 * factor,
                                .truth = 4,
                                .elements = 1,
                                .expected = 1 };
        comparison_tensor(&c, &c.gradient, "gradient", found, &s, 2);
    }
    expect_words("step 7: gradient h.0.ln_1.bias on device 1 (dp=0 tp=1) differs from the one-device run by 1; its "
                 "bound is 0.0625; "
                 "wrong on tp=1, any dp; it is expected times 2.0000 = dp");
    assert_false(number_holds(12, 4, 0.25));
    expect_words(
        "step 1: loss differs from the one-device run by 2; its bound is 0.0625; it is expected times 3.0000 = tp");
    c = (struct comparison){ 0 };
    double excess[] = { 1.5 };
    comparison_excess(&c, (struct worst){ .tensor = "wte.weight", .rank = 5, .step = 2 }, tensor_1d(excess, F64, 1));
    expect_words("step 2: quantised gradient wte.weight on device 5 (dp=1 tp=2) differs from the sum of what was "
                 "quantised, in units of what "
                 "that allows, by 1.5; its bound is 1; wrong on dp=1, tp=2");
}

/* ---- right, wrong, cannot be judged ------------------------------------------------------------------------------ */

static void test_judgements(void **state)
{
    (void)state;
    const double wide = WIDE_BOUND, above = WIDE_BOUND * (1 + 0x1p-40);
    const struct { double error, bound; enum judgement is; } cases[] = {
        { 0, 0, JUDGED_RIGHT },       { wide, wide, JUDGED_RIGHT },         { above, wide, JUDGED_WRONG },
        { 9e9, wide, JUDGED_WRONG },  { above, above, JUDGED_RIGHT },       { 0.9, 0.99, JUDGED_RIGHT },
        { 0.5, above, CANNOT_BE_JUDGED },                                   { 9e9, 0.5, CANNOT_BE_JUDGED },
        { 0.5, 1, CANNOT_BE_JUDGED }, { 2, 1.5, CANNOT_BE_JUDGED },         { 0, 1.5, JUDGED_RIGHT },
        { 0.5, INFINITY, CANNOT_BE_JUDGED },                                { 0.5, NAN, CANNOT_BE_JUDGED },
        { NAN, 0.5, JUDGED_WRONG },   { INFINITY, 1.5, JUDGED_WRONG },      { 0x1p-60, 0, JUDGED_WRONG },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (judge_error(cases[i].error, cases[i].bound) != cases[i].is)
            fail_msg("error %g, bound %g: %d", cases[i].error, cases[i].bound,
                     (int)judge_error(cases[i].error, cases[i].bound));
}

/* A tensor that cannot be judged is no failure, but does not hold either; wide bounds are named, the widest of them. */
static void test_unjudged(void **state)
{
    (void)state;
    const struct plan p = plan_2x3();
    char text[400];
    hold("a", 0, 0.5, 1);
    assert_true(comparison_holds(&c));
    assert_string_equal(comparison_warning(text, sizeof text, &c, &p), "");
    hold("b", 1, 1 / SMALL / 8, 1 / SMALL / 4);
    hold("d", 4, 1 / SMALL / 8, 1 / SMALL / 2);
    hold("e", 2, 0, 1 / SMALL / 2);                             /* equal: nothing to warn of */
    hold("f", 5, 1 / SMALL / 4, 1 / SMALL / 2);
    assert_true(comparison_holds(&c) && c.warned == 3 && c.unjudged == 0);
    assert_string_equal(comparison_warning(text, sizeof text, &c, &p),
                        "3 of 5 comparisons hold by a bound above 0.1, the widest 0.5: gradient d, step 1, device 4 "
                        "(dp=1 tp=1)");
    hold("g", 1, 1 / SMALL / 2, 1 / SMALL / 4);
    hold("i", 0, 2 / SMALL, 1 / SMALL);
    assert_true(!comparison_holds(&c) && !c.failed && c.wrong == 0 && c.unjudged == 2);
    assert_string_equal(comparison_unjudged(text, sizeof text, &c, &p),
                        "2 of 7 comparisons cannot be judged, first gradient g, step 1, device 1 (dp=0 tp=1): it "
                        "differs by 0.5, and rounding alone may change it by 0.25");
    hold("k", 0, 2, 1);
    assert_true(c.failed && c.wrong == 1 && c.unjudged == 2);
    c = (struct comparison){ 0 };
    assert_true(!number_holds(5, 4, 0.25) && number_holds(5, 4, 0.5) && !comparison_holds(&c));
    assert_string_equal(comparison_unjudged(text, sizeof text, &c, &p),
                        "1 of 1 comparisons cannot be judged, first loss, step 1: it differs by 0.25, and rounding "
                        "alone may change it by 0.125");
}

/* A norm of 0 makes error and bound absolute: no such bound is wide. */
static void test_absolute_bounds_are_not_wide(void **state)
{
    (void)state;
    struct worst found = { .tensor = "w", .bound = 4 };
    struct sums s = differ_by(2);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 0);
    assert_true(comparison_holds(&c) && c.warned == 0);
    s = differ_by(8);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 0);
    assert_true(c.failed && c.unjudged == 0);
}

/* With exact sums a device has no bound; the one-device run has the golden file's, and no device is blamed for it. */
static void test_exact_sums_beside_a_file(void **state)
{
    (void)state;
    const struct plan p = { .mesh = { .devices = 2, .size = { [DP] = 2, [TP] = 1, [PP] = 1, [CP] = 1, [EP] = 1 } },
                            .micros = 1 };
    struct worst found = { .bound = SMALL, .step = 2, .of_file = true };
    struct sums s = differ_by(SMALL);
    char text[300];
    snprintf(found.tensor, sizeof found.tensor, "w");
    c = (struct comparison){ .exact = true, .beside_file = true };
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 1);
    hold("w", 0, 0, 1);
    assert_true(comparison_holds(&c) && c.compared == 2 && c.gradient.of_file);
    hold("w", 1, 0x1p-80, 1);
    assert_true(c.failed && !c.first.of_file && c.first.rank == 1);

    c = (struct comparison){ .exact = true, .beside_file = true };
    s = differ_by(2 * SMALL);
    comparison_tensor(&c, &c.gradient, "gradient", found, &s, 1);
    hold("v", 0, 0, 1), hold("v", 1, 0, 1);
    assert_true(c.failed && c.wrong == 1 && c.first.of_file && devices_count(&c.where.on.holding) == 0);
    assert_string_equal(comparison_describe(text, sizeof text, &c, &p),
                        "step 2: gradient w of the one-device run with exact sums differs from the golden file by "
                        "0.00195; its bound is 0.000977");
    c = (struct comparison){ .exact = true, .beside_file = true };
    comparison_number(&c, &c.loss, "loss", 4, 4, 0, (struct worst){ .step = 1 });
    comparison_number(&c, &c.loss, "loss", 4, 5, 1, (struct worst){ .step = 1, .of_file = true });
    assert_true(comparison_holds(&c) && c.loss.of_file);
    comparison_number(&c, &c.loss, "loss", 4, nextafter(4, 5), 1, (struct worst){ .step = 1 });
    assert_true(c.failed && !c.first.of_file);
}

#define FRESH(f) cmocka_unit_test_setup(f, forget)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exceeds), cmocka_unit_test(test_sums), cmocka_unit_test(test_error_of_sums),
            cmocka_unit_test(test_every_element_counts),
        FRESH(test_border), FRESH(test_error_is_of_the_whole), FRESH(test_missing_elements), FRESH(test_numbers),
            FRESH(test_divergence),
        FRESH(test_zero_truth), FRESH(test_skipped_step), FRESH(test_worst_is_by_ratio), FRESH(test_nan_stays),
            FRESH(test_first),
        FRESH(test_holders_after_the_failure), FRESH(test_every_kind_is_reported), FRESH(test_excess),
            FRESH(test_words), cmocka_unit_test(test_judgements), FRESH(test_unjudged),
            FRESH(test_absolute_bounds_are_not_wide), FRESH(test_exact_sums_beside_a_file),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
