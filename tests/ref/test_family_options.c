/* Families of models and their options: a config that contradicts its family is refused with one line that names the
 * option, whoever filled the config; and the files of families that are tables of keys alone.
 * tier: check
 */
#include "ref/model/config_json/config_json.h"
#include "ref/model/families/families.h"
#include "ref/routers/router.h"
#include "tests/ref/config_text.h"
#include <stdlib.h>

#define FILE_OF(type) "{\"model_type\": \"" type "\", \"vocab_size\": 61, \"hidden_size\": 24, " \
                      "\"intermediate_size\": 37, \"num_hidden_layers\": 4, \"num_attention_heads\": 6, " \
                      "\"max_position_embeddings\": 48"
#define SPARSE(type) FILE_OF(type) ", \"moe_intermediate_size\": 13, \"num_key_value_heads\": 2"

static void expect_refused(const char *start, const char *more, const char *says)
{
    struct model_config c;
    struct error err;
    if (parse(&c, start, more, &err) == OK) fail_msg("%s is accepted", more);
    if (strstr(err.text, says) == NULL) fail_msg("%s: %s; it must say %s", more, err.text, says);
}

/* What is written reads back the same. */
static struct model_config again(const struct model_config *c)
{
    struct model_config r;
    struct error err;
    char *text;
    assert_int_equal(model_config_text(c, &text, &err), OK);
    if (model_config_parse(&r, text, "written", &err) != OK) fail_msg("%s: %s", text, err.text);
    free(text);
    return r;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void add_sinks(struct model_config *c) { c->sinks = true; }
static void add_cap(struct model_config *c) { c->logit_cap = 30; }
static void add_window(struct model_config *c) { c->windows.size = 4, windows_add(&c->windows, 0, 1); }
static void add_output_bias(struct model_config *c) { c->biases |= HAS_BIAS(ROLE_HEAD); }
static void add_half_a_feed(struct model_config *c) { c->biases ^= HAS_BIAS(ROLE_UP); }
static void add_norms_around(struct model_config *c) { c->norms_at = NORMS_AROUND; }
static void add_whole_norms(struct model_config *c) { c->normed_together = true; }
static void scale_embedding(struct model_config *c) { c->scaled_embedding = true; }

static const struct { enum model_option option; void (*add)(struct model_config *); const char *words; } changes[] = {
    { HAS_SINKS, add_sinks, "sinks" }, { HAS_LOGIT_CAP, add_cap, "a cap of logits" },
    { HAS_SOME_WINDOWS, add_window, "windows" }, { HAS_HEAD_BIASES, add_output_bias, "a bias of its output matrix" },
    { HAS_OTHER_BIASES, add_half_a_feed, "biases of a" }, { HAS_NORMS_AROUND, add_norms_around, "norms around" },
    { HAS_WHOLE_NORMS, add_whole_norms, "norms of all queries together" },
    { HAS_SCALED_EMBEDDING, scale_embedding, "scaled embeddings" },
};
enum { CHANGES = sizeof changes / sizeof *changes };

/* Each preset with each option, whatever its family.  A layer with a window more may be one of those that there are. */
static void options_of_other_families_are_refused(void **state)
{
    int allowed = 0, refused = 0;
    (void)state;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++)
        for (int i = 0; i < CHANGES; i++) {
            struct model_config c = p->config;
            struct error err = { OK, "" };
            changes[i].add(&c);
            const bool may = family_allows(c.family, changes[i].option), ok = model_config_check(&c, &err) == OK;
            if (c.windows.size && model_windowed_layers(&c) == c.L) continue;
            if (ok != may) fail_msg("%s with %s: %s", c.name, changes[i].words, ok ? "accepted" : err.text);
            if (!ok && (strstr(err.text, "model: ") != err.text || !strstr(err.text, c.family->title)))
                fail_msg("%s with %s: %s", c.name, changes[i].words, err.text);
            allowed += ok, refused += !ok;
        }
    assert_true(allowed >= 15 && refused >= 100);
}

static void a_missing_option_is_named(void **state)
{
    struct model_config c;
    struct error err;
    int64_t batch;
    (void)state;
    assert_int_equal(model_config_preset(&c, &batch, "qwen3-tiny", &err), OK);
    c.head_norms = false;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: no norms of queries and keys in a Qwen3, which always has");
    c.head_norms = true, c.sinks = true;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: sinks in a Qwen3, which has none");
    c.family = NULL;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_true(strstr(err.text, "model: it names no family; there are gpt2, llama, ") == err.text);
}

/* Devices have a table for what the family allows, and a file that reads back the same. */
static void every_family_is_whole(void **state)
{
    (void)state;
    for (int i = 0; families[i]; i++) {
        const struct family *f = families[i];
        const struct program *last = f->program;
        while (last->with != HAS_NOTHING) last++;
        if (!last->embedding || !last->block || !last->loss) fail_msg("%s has no table for all its models", f->name);
        if (family_allows(f, HAS_DENSE_LAYERS) != (last->dense_block != NULL)) fail_msg("%s: dense layers", f->name);
        for (enum model_option o = HAS_NOTHING + 1; o < MODEL_OPTIONS; o++)
            if (o == HAS_OTHER_BIASES && family_allows(f, o)) fail_msg("%s: half of a set of biases", f->name);
        assert_true(f->architecture && f->without_head && f->defaults && f->keys && f->finish && f->naming);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void olmoe(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("olmoe"), ""), r = again(&c);
    assert_true(c.family == &family_olmoe && r.family == &family_olmoe && c.padding == 2 && r.padding == 2);
    assert_true(c.mixture.E == 64 && c.mixture.k == 8 && c.K == 6 && c.F == 37 && c.normed_together && c.eps == 1e-5);
    assert_true(!c.mixture.router.normalized && !r.mixture.router.normalized && c.rotary.theta == 10000);
    assert_true(parsed(FILE_OF("olmoe"), "\"norm_topk_prob\": true, \"num_experts\": 9").mixture.E == 9);
    expect_refused(FILE_OF("olmoe"), "\"clip_qkv\": 8.0", "clip_qkv is 8; Orrery has only null");
}

static void qwen2_moe(void **state)
{
    (void)state;
    const struct model_config c = parsed(SPARSE("qwen2_moe"), "\"mlp_only_layers\": [1]"), r = again(&c),
                              plain = parsed(SPARSE("qwen2_moe"), "\"qkv_bias\": false"), p = again(&plain);
    assert_true(c.family == &family_qwen2_moe && c.mixture.E == 60 && c.mixture.k == 4 && c.mixture.shared == 5632);
    assert_true(c.biases == HAS_BIAS(ROLE_QKV) && r.biases == c.biases && plain.biases == 0 && p.biases == 0);
    assert_true(c.mixture.shared_gate && r.mixture.shared == 5632 && r.mixture.shared_gate);
    assert_true(c.dense.F == 37 && layer_set_has(&r.dense.at, 1) && layer_set_count(&r.dense.at, 4) == 1);
    expect_refused(SPARSE("qwen2_moe"), "\"shared_expert_gate\": false",
                   "no shared experts with a gate in a Qwen2-MoE, which always has");
}

static void glm4_moe(void **state)
{
    (void)state;
    const struct model_config c = parsed(SPARSE("glm4_moe"), "\"head_dim\": 8"), r = again(&c),
                              whole = parsed(SPARSE("glm4_moe"), "\"rope_parameters\": {\"rope_type\": \"default\", "
                                             "\"partial_rotary_factor\": 1.0, \"rope_theta\": 50.0}, "
                                             "\"use_qk_norm\": true, \"attention_bias\": true"), w = again(&whole);
    const struct router_rule *rule = &c.mixture.router;
    assert_true(c.family == &family_glm4_moe && c.mixture.E == 128 && c.mixture.k == 8 && c.mixture.shared == 13);
    assert_true(c.rotary.turned == 4 && r.rotary.turned == 4 && whole.rotary.turned == 0 && w.rotary.turned == 0);
    assert_true(rule->scores == SCORES_SIGMOID && rule->biased && rule->normalized);
    assert_true(router_same(rule, &r.mixture.router));
    assert_true(!c.head_norms && w.head_norms && w.biases == HAS_BIAS(ROLE_QKV) && r.biases == 0);
    assert_true(c.dense.F == 37 && layer_set_has(&r.dense.at, 0) && layer_set_count(&r.dense.at, 4) == 1);
    assert_string_equal(model_router_bias(&c, 1).name, "model.layers.1.mlp.gate.e_score_correction_bias");
    expect_refused(SPARSE("glm4_moe"), "\"scoring_func\": \"softmax\"", "other routers need orrery_router true");
    expect_refused(SPARSE("glm4_moe"), "\"n_shared_experts\": null", "no shared experts in a GLM-4.5");
    struct model_config later = c;
    struct error err;
    later.dense.at = (struct layer_set){ { 2 } };
    assert_int_equal(model_config_check(&later, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: dense layers behind others in a GLM-4.5, which has none");
}

static void olmo3(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("olmo3"), ""), r = again(&c),
                              two = parsed(FILE_OF("olmo3"), "\"rope_parameters\": {\"full_attention\": {"
                                           "\"rope_type\": \"linear\", \"factor\": 4.0, \"rope_theta\": 50.0}, "
                                           "\"sliding_attention\": {\"rope_type\": \"default\", "
                                           "\"rope_theta\": 20.0}}"), t = again(&two),
                              old = parsed(FILE_OF("olmo3"), "\"rope_theta\": 70.0");
    assert_true(c.family == &family_olmo3 && c.windows.size == 4096 && model_windowed_layers(&c) == 3);
    assert_true(model_window(&c, 3) == 0 && model_windowed_layers(&r) == 3 && r.windows.size == 4096);
    assert_true(c.rotary.theta == 500000 && c.local_theta == 500000 && old.rotary.theta == 70 && old.local_theta == 70);
    assert_true(t.rotary.theta == 50 && t.rotary.scaling == SCALING_LINEAR && t.rotary.factor == 4);
    assert_true(t.local_theta == 20);
    assert_true(model_rotary(&t, 0).scaling == SCALING_NONE && model_rotary(&t, 3).scaling == SCALING_LINEAR);
    expect_refused(FILE_OF("olmo3"), "\"sliding_window\": null", "sliding_window is null");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_other_families_are_refused), cmocka_unit_test(a_missing_option_is_named),
        cmocka_unit_test(every_family_is_whole), cmocka_unit_test(olmoe), cmocka_unit_test(qwen2_moe),
        cmocka_unit_test(glm4_moe), cmocka_unit_test(olmo3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
