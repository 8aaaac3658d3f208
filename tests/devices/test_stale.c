/* A gradient that the weights of the step before give, in a model whose routers have corrections that move: the pass
 * that explains it has the weights of the step before, and the corrections of its own step.
 */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/mistakes/stale.h"
#include "ref/golden/batch.h"
#include "ref/golden/make.h"
#include "ref/model/transformer.h"
#include "ref/numeric/distance.h"
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

/* Fill a batch of some sequences with labels that are ignored in uneven numbers; the last sequence has none. */
static void fill_batch(int32_t *ids, int32_t *labels, int64_t B, int64_t S, int64_t V)
{
    for (int64_t i = 0; i < B * S; i++) {
        ids[i] = (int32_t)(i * i * 37 % V);
        labels[i] = i / S == B - 1 || i % 7 < i / S ? -1 : (int32_t)(i * 61 % V);
    }
}

/* A batch that is run sequence by sequence has the gradients of the whole: with dropout, by any rule of the loss. */
static void test_a_batch_is_its_sequences(void **state)
{
    enum { B = 4 };
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct model_config c = case_plan(1, 1, 1).model;
        struct transformer whole, one;
        double loss;
        if (k == 1) c.dropout_embedding = c.dropout_residual = c.dropout_attention = 0.2;
        if (k == 2) c.loss.mean = MEAN_OF_SEQUENCES, c.loss.smoothing = 0.1;
        int32_t ids[B * 64], labels[B * 64];
        assert_true(c.S <= 64);
        fill_batch(ids, labels, B, c.S, c.V);
        if (transformer_open(&whole, &c, F64, 3, &err) || transformer_open(&one, &c, F64, 3, &err))
            fail_msg("%s", err.text);
        if (transformer_forward(&whole, ids, labels, B, c.S, &loss, &err)) fail_msg("%s", err.text);
        transformer_backward(&whole);
        const struct own_batch batch = { ids, labels, NULL, B, 0 };
        if (own_model_batch(&one, &batch, c.S, &err)) fail_msg("%s", err.text);
        assert_int_equal(one.B, 1);
        for (int i = 0; i < whole.params; i++) {
            const double off = squared_distance(one.g[i], whole.g[i]), size = squared_distance(whole.g[i], tensor_none);
            if (!(off <= 1e-24 * size)) fail_msg("%d: %s is off by %g of %g", k, whole.spec[i].name, off, size);
        }
        transformer_close(&whole), transformer_close(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_stale_and_corrections_are_not),
        cmocka_unit_test(test_a_batch_is_its_sequences),
    };
    return cmocka_run_group_tests_name("stale", tests, scratch_make, scratch_remove);
}
