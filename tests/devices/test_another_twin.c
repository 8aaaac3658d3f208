/* Bounds when an error is above them: other twins are measured, up to a limit, and the larger distances count.  And a
 * step that overflows on the devices only: a twin must do so, too.
 * tier: check
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/reference.h"
#include "tests/devices/batches.h"

static struct error err;

static void must(enum error_code e)
{
    if (e) print_error("%s\n", err.text);
    assert_int_equal(e, OK);
}

static void open(struct reference *ref, struct plan *p)
{
    const struct batch_source source = { fill_drawn, p };
    must(plan_check(p, &err));
    must(reference_open(ref, p, source, &err));
    must(reference_gradients(ref, &err));
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* All bounds of a step: gradients, activations and their gradients, loss, norm. */
static int bounds_of(const struct reference *r, double *bound)
{
    int n = 0;
    for (int i = 0; i < r->truth.model.params; i++) bound[n++] = reference_gradient_bound(r, i);
    for (int i = 0; i < r->record.count; i++) bound[n++] = recorded_bound(&r->record, &r->record.all[i]);
    bound[n++] = reference_loss_bound(r);
    bound[n++] = reference_norm_bound(r);
    return n;
}

static bool another(struct reference *r)
{
    bool more;
    must(reference_another_twin(r, &more, &err));
    return more;
}

/* No twin may let a bound shrink.  All twins together let most bounds grow: the first twin of so many is seldom the
 * farthest.  The truth stays as it was, and the twin's gradient is that of one pass, not of all. */
static void grow(struct plan p, int steps)
{
    struct reference ref;
    open(&ref, &p);
    for (int i = 1; i < steps; i++) {
        must(reference_update(&ref, &err));
        must(reference_gradients(&ref, &err));
    }
    const int room = ref.truth.model.params + ref.record.count + 2;
    const double loss = ref.truth.loss, norm = ref.truth.norm, first = ref.twin.norm, twin_loss = ref.twin.loss;
    const int64_t counted = ref.counted;
    double *before = calloc((size_t)room, sizeof *before), *after = calloc((size_t)room, sizeof *after);
    double *of_one = calloc((size_t)room, sizeof *of_one);
    int more = 0, grown = 0;
    assert_true(before && after && of_one);
    assert_int_equal(bounds_of(&ref, before), room);
    memcpy(of_one, before, (size_t)room * sizeof *of_one);
    for (; another(&ref); more++) {
        bounds_of(&ref, after);
        for (int i = 0; i < room; i++)
            if (!(after[i] >= before[i])) print_error("bound %d of %d was %g, is %g\n", i, room, before[i], after[i]);
        for (int i = 0; i < room; i++) assert_true(after[i] >= before[i]);
        memcpy(before, after, (size_t)room * sizeof *before);
    }
    assert_int_equal(more + 1, MOST_TWINS);
    for (int i = 0; i < room; i++) grown += after[i] > of_one[i];
    assert_in_range(grown, room / 2, room);
    assert_true(ref.truth.loss == loss && ref.truth.norm == norm && ref.counted == counted);
    assert_true(ref.twin.loss == twin_loss && fabs(ref.twin.norm / first - 1) < 0.1);
    free(before), free(after), free(of_one);
    reference_close(&ref);
}

static void test_bounds_grow(void **state)
{
    static const enum dtype formats[] = { F32, F64, BF16 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = case_plan(1, 1, 1);
        p.dtype = formats[i];
        grow(p, 1);
    }
}

/* In a step that has its directions, gradients are projected before they are reduced: another twin's, too. */
static void test_projected(void **state)
{
    struct plan p = case_plan(1, 1, 1);
    const struct optimizer *galore;
    (void)state;
    must(optimizer_find(&galore, "galore", &err));
    case_take_optimizer(&p, galore, 1);         /* with eps: the gradient of a key's bias can be 0 */
    grow(p, 2);
}

/* What reference.h says of a single random number, whose twins' deviation is three times as large: the chance that it
 * is beyond so many times the largest of n twins. */
static double chance_beyond(double times, int n)
{
    double sum = 0;
    const double step = 1e-4;
    for (double x = step / 2; x < 8; x += step)
        sum += step * sqrt(2 / acos(-1)) * exp(-x * x / 2) * pow(erf(x / 3 / times / sqrt(2)), n);
    return sum;
}

static void test_chances(void **state)
{
    (void)state;
    assert_true(fabs(chance_beyond(1, 1) - 2 / acos(-1) * atan(1. / 3)) < 1e-6);   /* known in closed form: 0.205 */
    assert_true(chance_beyond(1, MOST_TWINS) < 1e-6);
    assert_true(chance_beyond(HOPELESS, FEW_TWINS) < 1e-7);
}

/* ---- overflow ---------------------------------------------------------------------------------------------------- */

/* The gradients anew, with another loss scale. */
static bool overflows(struct reference *r, double scale)
{
    for (int i = 0; i < r->truth.model.params; i++) {
        memset(r->truth.model.g[i].data, 0, tensor_bytes(r->truth.model.g[i]));
        memset(r->twin.model.g[i].data, 0, tensor_bytes(r->twin.model.g[i]));
    }
    r->loss_scale.scale = scale;
    must(reference_gradients(r, &err));
    return reference_overflows(r);
}

static bool adopts(struct reference *r, double norm)
{
    must(reference_adopts_overflow(r, norm, &err));
    return r->adopts;
}

/* The largest scale without overflow, to one part in 10,000: there rounding decides. */
static void test_overflow_by_rounding(void **state)
{
    struct reference ref;
    struct plan p = case_plan(1, 1, 1);
    double most = 1, least = 0x1p40;
    (void)state;
    p.dtype = F16;
    open(&ref, &p);
    assert_true(ref.loss_scale.interval > 0 && !overflows(&ref, most) && overflows(&ref, least));
    while (least / most > 1.0001) {
        const double middle = sqrt(least * most);
        *(overflows(&ref, middle) ? &least : &most) = middle;
    }
    assert_true(!overflows(&ref, most) && !adopts(&ref, ref.truth.norm) && adopts(&ref, INFINITY));
    assert_true(overflows(&ref, least) && !adopts(&ref, INFINITY) && adopts(&ref, 1));
    assert_true(!overflows(&ref, most / 16) && !adopts(&ref, INFINITY));
    assert_true(overflows(&ref, least * 16) && !adopts(&ref, 1));
    reference_close(&ref);
}

/* Without a dynamic scale nothing is skipped: there infinities are a failure. */
static void test_overflow_unscaled(void **state)
{
    struct reference ref;
    struct plan p = case_plan(1, 1, 1);
    (void)state;
    open(&ref, &p);
    assert_false(adopts(&ref, INFINITY));
    reference_close(&ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_grow),          cmocka_unit_test(test_projected),
        cmocka_unit_test(test_chances),
        cmocka_unit_test(test_overflow_by_rounding), cmocka_unit_test(test_overflow_unscaled),
    };
    return cmocka_run_group_tests_name("another twin", tests, NULL, NULL);
}
