/* Trainings by the rule of partial pipelines: who leaves what out, times and shares of layers by formula, and that the
 * same training without skips is a whole one.
 * tier: check
 */
#include "emulated_devices/bench/partial.h"
#include "ref/machine/threads.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <cmocka.h>

enum { P = 4, M = 4, LAYERS = 8, BATCH = 8 };

static struct error err;

/* Layers 2 and 3 are stage 1, 4 and 5 stage 2; microbatches of two sequences leave out one of them in turn. */
static void test_rule(void **state)
{
    (void)state;
    bool out[LAYERS * BATCH];
    struct schedule s;
    const struct schedule_request request = { .devices = P, .micros = M, .skip = 1 };
    assert_int_equal(schedule_make(&s, "skippipe", &request, &err), OK);
    partial_rule(&s, LAYERS, BATCH, out);
    for (int l = 0; l < LAYERS; l++)
        for (int b = 0; b < BATCH; b++) {
            const int stage = l / 2, micro = b / 2;
            const bool want = stage == 1 + micro % 2;
            if (out[l * BATCH + b] != want)
                fail_msg("layer %d, sequence %d: left out %d, expected %d", l, b, out[l * BATCH + b], want);
        }
    schedule_free(&s);
    /* Half of 8 layers are all of the middle stages if there are 4 stages; of 8 stages they are 1, 3, 4 and 6. */
    for (int stages = P; stages <= 2 * P; stages += P) {
        partial_half(stages, LAYERS, BATCH, out);
        for (int l = 0; l < LAYERS; l++)
            for (int b = 0; b < BATCH; b++) {
                const bool want = stages == P ? l >= 2 && l < 6 : l == 1 || l == 3 || l == 4 || l == 6;
                if (out[l * BATCH + b] != want) fail_msg("%d stages, layer %d: left out %d", stages, l, !want);
            }
    }
}

/* Each microbatch leaves out skip of P stages.  1F1B takes 3 (P-1+M); the partial one idles 3 (P-1-skip) beside the
 * first stage's 3 M. */
static void test_trainings(void **state)
{
    (void)state;
    struct partial_setting s = { .pp = P, .micro = M, .batch = BATCH, .steps = 6, .held = 2, .lr = 3e-3 };
    struct partial_found whole, again, partial;
    struct text text;
    int64_t batch;
    threads_set(1);
    assert_int_equal(model_config_preset(&s.model, &batch, "tiny", &err), OK);
    assert_int_equal(text_load_own(&text, &err), OK);
    s.text = &text;
    if (partial_train(&s, 0, &whole, &err) != OK || partial_train(&s, 0, &again, &err) != OK ||
        partial_train(&s, 1, &partial, &err) != OK)
        fail_msg("%s", err.text);
    assert_true(whole.span == 1 && whole.layers == 1);
    assert_true(whole.loss == again.loss && whole.half == again.half);          /* the same bits */
    assert_true(whole.loss > 1 && whole.loss < log(256));                       /* it has learnt something */
    if (partial.layers != 1 - 1.0 / P) fail_msg("layers %g, expected %g", partial.layers, 1 - 1.0 / P);
    const double span = (3.0 * M + 3 * (P - 1 - 1)) / (3 * (P - 1 + M));
    if (fabs(partial.span - span) > 1e-12) fail_msg("time %g, expected %g", partial.span, span);
    assert_true(partial.loss != whole.loss && partial.half != partial.loss);
    /* A schedule that is refused says so. */
    s.pp = 3;
    assert_int_equal(partial_train(&s, 2, &partial, &err), ERR_PLAN);
    text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_trainings),
    };
    return cmocka_run_group_tests_name("partial pipelines", tests, NULL, NULL);
}
