/* The loss scale: when it grows, when it is reduced, when a step is taken, and what counts as overflow.
 * tier: check
 */
#include "ref/optim/loss_scale.h"
#include "tests/ref/test_ops.h"

static const struct conventions ours = { 0 };

static void grows_after_good_steps_in_a_row(void **state)
{
    (void)state;
    struct loss_scale s = { .scale = 8, .growth = 2, .backoff = 0.5, .interval = 3 };
    const struct { bool overflow, step; double scale; } script[] = {
        { false, true, 8 }, { false, true, 8 }, { false, true, 16 },       /* the third in a row */
        { false, true, 16 }, { false, true, 16 }, { true, false, 8 },      /* overflow starts the count again */
        { false, true, 8 }, { true, false, 4 }, { true, false, 2 }, { false, true, 2 }, { false, true, 2 },
        { false, true, 4 },
    };
    for (size_t i = 0; i < sizeof script / sizeof *script; i++) {
        const bool step = loss_scale_update(&s, script[i].overflow);
        if (step != script[i].step || !(s.scale == script[i].scale))
            fail_msg("call %zu: step %d, scale %g; want %d, %g", i, step, s.scale, script[i].step, script[i].scale);
    }
}

static void stays_a_positive_finite_number(void **state)
{
    (void)state;
    struct loss_scale s = loss_scale_of(&ours, F16);
    for (int i = 0; i < 2000; i++) loss_scale_update(&s, true);
    assert_true(s.scale == 0x1p-149);
    s.interval = 1;
    for (int i = 0; i < 2000; i++) loss_scale_update(&s, false);
    assert_true(s.scale == 0x1p127);
}

static void only_fp16_is_scaled(void **state)
{
    (void)state;
    const struct loss_scale fp16 = loss_scale_of(&ours, F16);
    assert_true(fp16.scale == 65536 && fp16.growth == 2 && fp16.backoff == 0.5 && fp16.interval == 2000);
    const enum dtype others[] = { F32, F64, BF16 };
    for (int i = 0; i < 3; i++) {
        struct loss_scale s = loss_scale_of(&ours, others[i]);
        for (int k = 0; k < 5000; k++) assert_true(loss_scale_update(&s, k == 7));
        assert_true(s.scale == 1);
    }
}

static void finds_what_is_not_finite(void **state)
{
    (void)state;
    const enum dtype formats[] = { F32, F64, BF16, F16 };
    const double bad[] = { NAN, INFINITY, -INFINITY };
    enum { LONG = 1003 };
    for (int f = 0; f < 4; f++) {
        struct tensor x[3] = { fill(vector(formats[f], 7), 1, "a"), vector(formats[f], 0),
                               fill(vector(formats[f], LONG), 60000, "b") };
        tensor_set(x[0], 3, formats[f] == F16 ? 65504 : FLT_MAX / 2);
        assert_true(tensors_finite(x, 3));
        assert_true(tensors_finite(x, 0));
        for (int k = 0; k < 3; k++)
            for (int64_t at = 0; at < LONG; at += 167) {
                const double was = tensor_get(x[2], at);
                tensor_set(x[2], at, bad[k]);
                if (tensors_finite(x, 3))
                    fail_msg("%s: %g at %lld was not found", dtype_name(formats[f]), bad[k], (long long)at);
                assert_true(tensors_finite(x, 2));
                tensor_set(x[2], at, was);
            }
        check_guards_and_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_after_good_steps_in_a_row), cmocka_unit_test(stays_a_positive_finite_number),
        cmocka_unit_test(only_fp16_is_scaled), cmocka_unit_test(finds_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
