/* Low-rank adapters on one device: loss, and gradients of A and B, against peft (golden/adapters/); what does
 * not train has no gradient; which parameters are in which class.
 * tier: check
 */
#include "ref/model/adapters.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/trained.h"
#include "ref/model/weights.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

enum { BATCH = 2, TOKENS = 6, V = 17 };
static struct error err;

/* The configs of make_adapters.py. */
static const struct model_config gpt2 = {
    .name = "gpt2", .family = &family_gpt2, .S = TOKENS, .D = 12, .H = 2, .K = 2, .A = 6, .F = 20, .L = 2, .V = V,
    .biases = BIASES_BLOCK, .tied = true, .eps = 1e-5, .init_std = 0.02,
    .adapters = { 3, 5, LOW_ON_ATTENTION | LOW_ON_FEED }, .trains = 1u << CLASS_ADAPTERS,
};
static const struct model_config mixtral = {
    .name = "mixtral", .family = &family_mixtral, .S = TOKENS, .D = 8, .H = 2, .K = 1, .A = 4, .F = 6, .L = 2, .V = V,
    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_MIXTURE,
    .mixture = { .E = 3, .k = 2, .router = { .normalized = true, .scale = 1 } }, .eps = 1e-5, .init_std = 0.02,
    .adapters = { 3, 5, LOW_ON_EXPERTS }, .trains = 1u << CLASS_ADAPTERS,
};

static void take(const struct weights *file, const char *name, struct tensor t)
{
    const struct safetensors_entry *const e = safetensors_find(&file->file[0], name);
    if (e == NULL) fail_msg("the golden file has no %s", name);
    assert_int_equal(e->count, tensor_count(t));
    if (safetensors_read(&file->file[0], e, t.dtype, t.data, &err) != OK) fail_msg("%s", err.text);
}

/* The gradients of an A or a B are peft's; all others are zero. */
static void check_gradient(const struct weights *file, const struct transformer *model, int i)
{
    const struct tensor g = model->g[i];
    const bool adapter = model->spec[i].role == ROLE_LOW_IN || model->spec[i].role == ROLE_LOW_OUT;
    double want[512] = { 0 }, off = 0, size = 0;
    char name[PARAM_NAME + 8];
    assert_true(tensor_count(g) <= 512);
    snprintf(name, sizeof name, "grad/%s", model->spec[i].name);
    if (adapter) take(file, name, tensor_1d(want, F64, tensor_count(g)));
    for (int64_t k = 0; k < tensor_count(g); k++)
        off = fmax(off, fabs(tensor_get(g, k) - want[k])), size = fmax(size, fabs(want[k]));
    if (off > 1e-12 * size || (adapter && size == 0))
        fail_msg("the gradient of %s is off by %.3g, of %.3g", model->spec[i].name, off, size);
}

static void check_golden(const struct model_config *config, const char *path)
{
    struct transformer model;
    struct weights file;
    int32_t ids[BATCH * TOKENS], labels[BATCH * TOKENS];
    double want, loss;
    int adapters = 0;
    if (weights_open_file(&file, path, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(transformer_open(&model, config, F64, 1, &err), OK);
    if (weights_read(&model, &file, &err) != OK) fail_msg("%s", err.text);
    take(&file, "ids", tensor_1d(ids, I32, BATCH * TOKENS));
    take(&file, "labels", tensor_1d(labels, I32, BATCH * TOKENS));
    take(&file, "loss", tensor_1d(&want, F64, 1));
    struct tensor before = model.w[model.params / 2];
    before.data = malloc(tensor_bytes(before));
    assert_non_null(before.data);
    memcpy(before.data, model.w[model.params / 2].data, tensor_bytes(before));
    /* The second pass finds the matrices as the first one did. */
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(transformer_forward(&model, ids, labels, BATCH, TOKENS, &loss, &err), OK);
        if (!(fabs(loss - want) <= 1e-13 * want)) fail_msg("%s: the loss is %.17g, want %.17g", path, loss, want);
        if (pass == 1) transformer_zero_gradients(&model);
        transformer_backward(&model);
    }
    for (int i = 0; i < model.params; i++)
        check_gradient(&file, &model, i), adapters += param_adapted(config, i) >= 0;
    assert_int_equal(adapters, config->mlp == MLP_MIXTURE ? 2 * 3 * 2 * 2 : 2 * 4 * 2);
    /* The matrices are where they were, with the bits they had. */
    assert_memory_equal(before.data, model.w[model.params / 2].data, tensor_bytes(before));
    free(before.data), transformer_close(&model), weights_close(&file);
}

static void test_gpt2_is_pefts(void **state) { (void)state; check_golden(&gpt2, "golden/adapters/gpt2.safetensors"); }
static void test_experts_are_pefts(void **state)
{
    (void)state;
    check_golden(&mixtral, "golden/adapters/mixtral.safetensors");
}

/* B begins as zeros, so that a model with new adapters is the model without. */
static void test_new_adapters_change_nothing(void **state)
{
    struct model_config plain = mixtral;
    struct transformer model[2];
    int32_t ids[TOKENS] = { 1, 5, 2, 9, 16, 3 };
    double loss[2];
    (void)state;
    plain.adapters = (struct adapters_config){ 0 }, plain.trains = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(transformer_open(&model[i], i ? &mixtral : &plain, F64, 7, &err), OK);
        assert_int_equal(transformer_forward(&model[i], ids, ids, 1, TOKENS, &loss[i], &err), OK);
        transformer_close(&model[i]);
    }
    assert_true(loss[0] == loss[1]);
}

static void test_lists(void **state)
{
    unsigned of;
    (void)state;
    assert_int_equal(trained_read(&of, "experts,encoders", &err), OK);
    assert_int_equal(of, 1u << CLASS_EXPERTS | 1u << CLASS_ENCODERS);
    assert_string_equal(trained_text(of).text, "experts,encoders");
    assert_int_equal(trained_read(&of, "experts,", &err), ERR_USAGE);
    assert_int_equal(trained_read(&of, "expert", &err), ERR_USAGE);
    assert_int_equal(adapted_read(&of, "experts,attention", &err), OK);
    assert_string_equal(adapted_text(of).text, "attention,experts");
    assert_int_equal(adapted_read(&of, "", &err), ERR_USAGE);
}

/* Matrices do not train beside their adapters; there must be matrices. */
static void test_what_is_refused(void **state)
{
    struct model_config c = mixtral;
    (void)state;
    c.trains |= 1u << CLASS_EXPERTS;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    c = mixtral, c.adapters.of = LOW_ON_FEED;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    c = mixtral, c.trains = 1u << CLASS_NORMS;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    c = mixtral, c.adapters.rank = 9;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    c = gpt2, c.adapters.rank = 0;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_gpt2_is_pefts),
                                        cmocka_unit_test(test_experts_are_pefts),
                                        cmocka_unit_test(test_new_adapters_change_nothing),
                                        cmocka_unit_test(test_lists), cmocka_unit_test(test_what_is_refused) };
    return cmocka_run_group_tests_name("adapters", tests, NULL, NULL);
}
