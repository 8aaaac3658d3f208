/* A gradient that the weights of the step before give, in a model whose routers have corrections that move: the pass
 * that explains it has the weights of the step before, and the corrections of its own step.
 */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/check/mistakes/stale.h"
#include "ref/golden/batch.h"
#include "ref/golden/make.h"
#include "tests/ref/scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { STEPS = 2, SEQUENCES = 3 };

static struct error err;

/* Corrections of this speed change choices in the second step. */
static struct model_config a_model(void)
{
    struct plan p = case_plan(1, 1, 1);
    case_take_deepseek_v3(&p);
    p.model.mixture.shared = p.model.F;         /* as files say it: so many experts */
    return p.model;
}

/* Two steps with a learning rate; with 0 the second step has the weights of the first, and the corrections that its
 * tokens have moved. */
static void make(const char *path, double rate)
{
    struct golden g = { .config = a_model(), .seed = 5, .steps = STEPS, .B = SEQUENCES, .every_step = true };
    struct golden_request q = { .optimizers = 1, .path = path, .bound = 1e-9 };
    int tensors;
    g.S = g.config.S;
    assert_int_equal(batch_allocate(&g, &err), OK);
    for (int64_t i = 0; i < g.steps * g.B * g.S; i++) {
        g.ids[i] = (int32_t)(i * i * 37 % g.config.V);
        g.labels[i] = (int32_t)(i * 61 % g.config.V);
    }
    assert_int_equal(optimizer_find(&q.optimizer[0], "sgd", &err), OK);
    q.hyper[0] = (struct hyperparameters){ .lr = rate };
    if (golden_make(&g, &q, &tensors, &err) != OK) fail_msg("%s", err.text);
    golden_close(&g);
}

static void test_weights_are_stale_and_corrections_are_not(void **state)
{
    struct golden golden;
    struct actual actual;
    int gradients = 0;
    char path[2][1024], text[160];
    (void)state;
    snprintf(path[0], sizeof path[0], "%s", scratch("right.safetensors"));
    snprintf(path[1], sizeof path[1], "%s", scratch("stale.safetensors"));
    make(path[0], 0.25), make(path[1], 0);
    if (golden_open(&golden, path[0], &err) != OK) fail_msg("%s", err.text);
    if (actual_open(&actual, path[1], NULL, &err) != OK) fail_msg("%s", err.text);
    const struct batch_cuts cuts = cuts_of(golden.B, golden.S, NULL, NULL, 0, 1);
    for (int i = 0; i < golden.file.count; i++) {
        const char *name = golden.file.entry[i].name;
        if (strncmp(name, "sgd/2/grad/", 11) != 0) continue;
        stale_describe(text, sizeof text, &golden, &actual, &cuts, name, 1e-9);
        if (strcmp(text, "stale weights: it is what the weights that step 1 began with give") != 0)
            fail_msg("%s: said to be \"%s\"", name, text);
        gradients++;
    }
    assert_true(gradients > 20);
    actual_close(&actual), golden_close(&golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_weights_are_stale_and_corrections_are_not) };
    return cmocka_run_group_tests_name("stale", tests, scratch_make, scratch_remove);
}
