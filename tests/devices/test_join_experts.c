/* Dense models that were trained apart become a mixture: expert n has the bits of model n, and all else is shared.
 * tier: check
 */
#include "emulated_devices/model/join_experts.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "tests/ref/scratch.h"
#include <stdio.h>
#include <sys/stat.h>

enum { MODELS = 3 };

static struct transformer dense[MODELS];
static char folder[MODELS][256], out[256];
static struct error err;

/* Models with the same numbers but for their feed-forwards, as --train-only feed leaves them. */
static int save_models(void **state)
{
    const struct model_config c = { .name = "dense", .family = &family_llama, .S = 5, .D = 12, .H = 3, .K = 1, .A = 4,
                                    .F = 7, .L = 2, .V = 11, .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
                                    .mlp = MLP_SWIGLU, .rotary = { .theta = 100 }, .eps = 1e-5, .init_std = 0.3 };
    if (scratch_make(state)) return 1;
    snprintf(out, sizeof out, "%s/mixture", scratch_folder);
    mkdir(out, 0777);
    for (int m = 0; m < MODELS; m++) {
        snprintf(folder[m], sizeof folder[m], "%s/%d", scratch_folder, m);
        mkdir(folder[m], 0777);
        assert_int_equal(transformer_open(&dense[m], &c, F32, (uint64_t)m, &err), OK);
        for (int i = 0; i < dense[m].params; i++)
            if (dense[m].spec[i].role != ROLE_UP && dense[m].spec[i].role != ROLE_DOWN)
                memcpy(dense[m].w[i].data, dense[0].w[i].data, tensor_bytes(dense[0].w[i]));
        assert_int_equal(weights_save(&dense[m], folder[m], &err), OK);
    }
    return 0;
}

static int close_models(void **state)
{
    for (int m = 0; m < MODELS; m++) transformer_close(&dense[m]);
    return scratch_remove(state);
}

static struct joining joining_of_all(void)
{
    struct model_config like;
    int64_t batch;
    struct joining j = { .models = MODELS, .dtype = F32, .seed = 5 };
    for (int m = 0; m < MODELS; m++) j.dir[m] = folder[m];
    assert_int_equal(model_config_read_folder(&j.dense, folder[0], &err), OK);
    assert_int_equal(model_config_preset(&like, &batch, "mixtral-tiny", &err), OK);
    if (joining_config(&j, &like, &err) != OK) fail_msg("%s", err.text);
    return j;
}

static const struct tensor *weight_of(const struct transformer *model, const struct param_spec *spec, bool by_name)
{
    for (int i = 0; i < model->params; i++) {
        const struct param_spec *const s = &model->spec[i];
        if (by_name ? strcmp(s->name, spec->name) == 0 : s->layer == spec->layer && s->role == spec->role)
            return &model->w[i];
    }
    fail_msg("no model has %s", spec->name);
    return NULL;
}

static void test_bits(void **state)
{
    struct joining j = joining_of_all();
    struct transformer mixture;
    (void)state;
    if (join_experts(&j, out, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(transformer_open(&mixture, &j.mixture, F32, 99, &err), OK);
    if (weights_load(&mixture, out, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(mixture.config.mixture.E, MODELS);
    int64_t joined = 0;
    for (int i = 0; i < mixture.params; i++) {
        const struct param_spec *const s = &mixture.spec[i];
        const size_t bytes = tensor_bytes(mixture.w[i]);
        if (s->role == ROLE_ROUTER) continue;
        const struct tensor *const from = weight_of(&dense[s->expert < 0 ? 0 : s->expert], s, s->expert < 0);
        assert_int_equal(tensor_bytes(*from), bytes);
        if (memcmp(mixture.w[i].data, from->data, bytes) != 0)
            fail_msg("%s has other bits than the model that was trained alone", s->name);
        joined += s->expert < 0 ? 0 : tensor_count(*from);
    }
    assert_int_equal(j.joined, joined);
    transformer_close(&mixture);
}

/* A model whose attention has trained, too, is refused by name. */
static void test_shared_differs(void **state)
{
    struct joining j = joining_of_all();
    (void)state;
    tensor_set(dense[2].w[2], 0, 7);
    assert_int_equal(weights_save(&dense[2], folder[2], &err), OK);
    assert_int_equal(join_experts(&j, out, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "train each expert alone with --train-only feed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits), cmocka_unit_test(test_shared_differs) };
    return cmocka_run_group_tests_name("join_experts", tests, save_models, close_models);
}
