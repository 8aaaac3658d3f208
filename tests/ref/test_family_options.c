/* Families of models and their options: a config that contradicts its family is refused with one line that names the
 * option, whoever filled the config; and the files of families that are tables of keys alone.
 * tier: check
 */
#include "ref/model/config_json/config_json.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/routers/router.h"
#include "tests/ref/config_text.h"
#include <math.h>
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

/* Each preset with each option, whatever its family.  A layer with a window more may be one of those that there are.  A
 * contradiction of two options is named before the family is. */
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
            const bool named = strstr(err.text, c.family->title) || strstr(err.text, ", but ");
            if (!ok && (strstr(err.text, "model: ") != err.text || !named))
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
    const struct model_config c = parsed(FILE_OF("olmoe"), ""), r = read_back(&c);
    assert_true(c.family == &family_olmoe && r.family == &family_olmoe && c.padding == 2 && r.padding == 2);
    assert_true(c.mixture.E == 64 && c.mixture.k == 8 && c.K == 6 && c.F == 37 && c.normed_together && c.eps == 1e-5);
    assert_true(!c.mixture.router.normalized && !r.mixture.router.normalized && c.rotary.theta == 10000);
    assert_true(parsed(FILE_OF("olmoe"), "\"norm_topk_prob\": true, \"num_experts\": 9").mixture.E == 9);
    expect_refused(FILE_OF("olmoe"), "\"clip_qkv\": 8.0", "clip_qkv is 8; Orrery has only null");
}

static void qwen2_moe(void **state)
{
    (void)state;
    const struct model_config c = parsed(SPARSE("qwen2_moe"), "\"mlp_only_layers\": [1]"), r = read_back(&c),
                              plain = parsed(SPARSE("qwen2_moe"), "\"qkv_bias\": false"), p = read_back(&plain);
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
    const struct model_config c = parsed(SPARSE("glm4_moe"), "\"head_dim\": 8"), r = read_back(&c),
                              whole = parsed(SPARSE("glm4_moe"), "\"rope_parameters\": {\"rope_type\": \"default\", "
                                             "\"partial_rotary_factor\": 1.0, \"rope_theta\": 50.0}, "
                                             "\"use_qk_norm\": true, \"attention_bias\": true"), w = read_back(&whole);
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
    const struct model_config c = parsed(FILE_OF("olmo3"), ""), r = read_back(&c),
                              two = parsed(FILE_OF("olmo3"), "\"rope_parameters\": {\"full_attention\": {"
                                           "\"rope_type\": \"linear\", \"factor\": 4.0, \"rope_theta\": 50.0}, "
                                           "\"sliding_attention\": {\"rope_type\": \"default\", "
                                           "\"rope_theta\": 20.0}}"), t = read_back(&two),
                              old = parsed(FILE_OF("olmo3"), "\"rope_theta\": 70.0");
    assert_true(c.family == &family_olmo3 && c.windows.size == 4096 && model_windowed_layers(&c) == 3);
    assert_true(model_window(&c, 3) == 0 && model_windowed_layers(&r) == 3 && r.windows.size == 4096);
    assert_true(c.rotary.theta == 500000 && c.local_theta == 500000 && old.rotary.theta == 70 && old.local_theta == 70);
    assert_true(t.rotary.theta == 50 && t.rotary.scaling == SCALING_LINEAR && t.rotary.factor == 4);
    assert_true(t.local_theta == 20);
    assert_true(model_rotary(&t, 0).scaling == SCALING_NONE && model_rotary(&t, 3).scaling == SCALING_LINEAR);
    expect_refused(FILE_OF("olmo3"), "\"sliding_window\": null", "sliding_window is null");
}

static void granite(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("granite"), ""), r = read_back(&c),
                              own = parsed(FILE_OF("granite"), "\"embedding_multiplier\": 12.0, "
                                           "\"residual_multiplier\": 0.22, \"attention_multiplier\": 0.015625, "
                                           "\"logits_scaling\": 16.0, \"attention_bias\": true, \"head_dim\": 8"),
                              o = read_back(&own);
    /* GraniteConfig's attention_multiplier is 1: scores are not divided by a root. */
    const struct multipliers none = { 1, 1, 1, 1 }, all = { 12, 0.22, 0.015625, 16 };
    assert_true(c.family == &family_granite && c.K == 6 && !c.tied && c.eps == 1e-6);
    assert_memory_equal(&c.multipliers, &none, sizeof none);
    assert_memory_equal(&r.multipliers, &none, sizeof none);
    assert_memory_equal(&own.multipliers, &all, sizeof all);
    assert_memory_equal(&o.multipliers, &all, sizeof all);
    assert_true(o.biases == BIASES_ATTENTION && o.A == 8);
    struct model_config half = own;
    half.multipliers = (struct multipliers){ .residual = 0.5 };
    const struct model_config h = read_back(&half);
    assert_true(h.multipliers.residual == 0.5 && h.multipliers.embedding == 1 && h.multipliers.logit_divisor == 1);
    assert_true(h.multipliers.scores == 1 / sqrt(8));
    expect_refused(FILE_OF("granite"), "\"logits_scaling\": 0", "logits_scaling is 0; it must be above 0");
}

#define SMOLLM3 FILE_OF("smollm3") ", \"num_key_value_heads\": 2"

static void smollm3(void **state)
{
    (void)state;
    const char *const windows = "\"use_sliding_window\": true, \"sliding_window\": 12";
    char listed[200];
    snprintf(listed, sizeof listed, "%s, \"no_rope_layers\": [1, 0, 0, 1]", windows);
    const struct model_config c = parsed(SMOLLM3, ""), r = read_back(&c),
                              every = parsed(SMOLLM3, "\"no_rope_layer_interval\": 2"),
                              own = parsed(SMOLLM3, listed), o = read_back(&own);
    assert_true(c.family == &family_smollm3 && c.K == 2 && c.tied && c.rotary.theta == 2e6 && c.padding == 128005);
    assert_true(c.unturned.bits[0] == 8 && r.unturned.bits[0] == 8 && every.unturned.bits[0] == 10);
    assert_true(c.windows.size == 0 && r.windows.size == 0 && r.padding == c.padding);
    /* Without layer_types the layers without positions have the window. */
    assert_true(own.unturned.bits[0] == 6 && o.unturned.bits[0] == 6);
    assert_true(own.windows.size == 12 && own.windows.layers[0] == 6 && o.windows.layers[0] == 6);
    assert_true(o.windows.size == 12);
    expect_refused(FILE_OF("smollm3"), "", "H=6 heads are not a multiple of K=4 key/value heads");
    expect_refused(SMOLLM3, "\"no_rope_layers\": [1, 0]", "a list of 0 or 1 for each of 4 layers");
    expect_refused(SMOLLM3, "\"no_rope_layers\": [1, 0, 2, 1]",
                   "no_rope_layers has something else than 0 and 1, for layer 2");
    expect_refused(SMOLLM3, "\"no_rope_layer_interval\": null", "no_rope_layer_interval is null");
}

static void starcoder2(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("starcoder2"), ""), r = read_back(&c),
                              own = parsed(FILE_OF("starcoder2"), "\"use_bias\": false, \"sliding_window\": 12, "
                                           "\"residual_dropout\": 0.1, \"embedding_dropout\": 0.2, "
                                           "\"norm_epsilon\": 0.001, \"tie_word_embeddings\": false"),
                              o = read_back(&own);
    assert_true(c.family == &family_starcoder2 && c.K == 2 && c.tied && c.norm == NORM_LAYER && c.mlp == MLP_GELU);
    assert_true(c.biases == BIASES_BLOCK && r.biases == BIASES_BLOCK && c.init_std == 0.018042 && c.windows.size == 0);
    assert_true(own.biases == BIASES_NONE && o.biases == BIASES_NONE && o.eps == 0.001 && !o.tied);
    assert_true(o.dropout_residual == 0.1 && o.dropout_embedding == 0.2 && o.windows.size == 12);
    assert_int_equal(model_windowed_layers(&o), 4);
    expect_refused(FILE_OF("starcoder2"), "\"hidden_act\": \"gelu\"", "Orrery has only \"gelu_pytorch_tanh\"");
    expect_refused(FILE_OF("starcoder2"), "\"rms_norm_eps\": 0.001", "does not know the key \"rms_norm_eps\"");
}

static void nemotron(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("nemotron"), ""), r = read_back(&c),
                              own = parsed(FILE_OF("nemotron"), "\"partial_rotary_factor\": 1.0, \"head_dim\": 8, "
                                           "\"norm_eps\": 0.001, \"mlp_bias\": true"), o = read_back(&own);
    assert_true(c.family == &family_nemotron && c.K == 6 && !c.tied && c.norms_from_one && r.norms_from_one);
    assert_true(c.activation == ACTIVATION_SQUARED_RELU && r.activation == ACTIVATION_SQUARED_RELU);
    assert_true(c.rotary.turned == 2 && r.rotary.turned == 2 && c.init_std == 0.0134);
    assert_true(o.rotary.turned == 0 && o.A == 8 && o.eps == 0.001 && o.biases == BIASES_FEED);
    expect_refused(FILE_OF("nemotron"), "\"partial_rotary_factor\": 0.2",
                   "partial_rotary_factor is 0.2, less than one of the 4 numbers of a head");
}

/* transformers 4 has other keys for theta and the part of a head, and so has what is written. */
static void gpt_neox(void **state)
{
    (void)state;
    const struct model_config c = parsed(FILE_OF("gpt_neox"), "\"rotary_pct\": 0.5"), r = read_back(&c),
                              own = parsed(FILE_OF("gpt_neox"), "\"rotary_pct\": 0.5, \"rotary_emb_base\": 500, "
                                           "\"use_parallel_residual\": false, \"attention_bias\": false, "
                                           "\"hidden_dropout\": 0.1, \"layer_norm_eps\": 0.001"), o = read_back(&own);
    char *text;
    struct error err;
    assert_int_equal(model_config_text(&own, &text, &err), OK);
    assert_non_null(strstr(text, "\"rotary_emb_base\":500.0"));
    assert_non_null(strstr(text, "\"rotary_pct\":0.5"));
    if (strstr(text, "rope_theta") || strstr(text, "rms_norm_eps") || strstr(text, "key_value")) fail_msg("%s", text);
    free(text);
    assert_true(c.family == &family_gpt_neox && c.K == 6 && c.rotary.turned == 2);
    assert_true(c.parallel && c.two_norms && r.parallel && r.two_norms && r.biases == BIASES_BLOCK);
    assert_true(!o.parallel && !o.two_norms && o.biases == BIASES_FEED && o.rotary.turned == 2);
    assert_true(o.rotary.theta == 500 && o.dropout_embedding == 0.1 && o.dropout_residual == 0.1 && o.eps == 0.001);
    expect_refused(FILE_OF("gpt_neox"), "\"rotary_emb_base\": 500, \"rope_parameters\": {\"rope_type\": \"default\", "
                   "\"rope_theta\": 10000.0}", "rotary_emb_base is 500, in rope_parameters it is 10000");
    expect_refused(FILE_OF("gpt_neox"), "\"rotary_emb_base\": 500, \"rope_theta\": 50",
                   "rope_theta is 50, rotary_emb_base is 500; they must be the same");
    expect_refused(FILE_OF("gpt_neox"), "\"partial_rotary_factor\": 0.5", "rotary_pct");
    expect_refused(FILE_OF("gpt_neox"), "", "rotary positions turn 1 numbers of a head");
    struct model_config one = c;
    one.two_norms = false;
    assert_int_equal(model_config_check(&one, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: one norm of parallel branches in a GPT-NeoX, which has none");
    const struct param_spec head = model_param(&c, param_head(&c));
    assert_string_equal(head.name, "lm_head.weight");
    assert_string_equal(head.part[0].name, "embed_out.weight");
}

static void nanogpt(void **state)
{
    (void)state;
    static const char file[] = "{\"model_type\": \"nanogpt\", \"vocab_size\": 61, \"block_size\": 48, "
                               "\"n_layer\": 2, \"n_head\": 3, \"n_embd\": 21, \"dropout\": 0.25";
    const struct model_config c = parsed(file, "\"bias\": true"), r = read_back(&c),
                              own = parsed(file, "\"bias\": false, \"n_inner\": 37, \"initializer_range\": 0.3"),
                              o = read_back(&own);
    assert_true(c.family == &family_nanogpt && c.F == 84 && r.F == 84 && c.tied && r.tied && c.A == 7 && c.S == 48);
    assert_true(c.activation == ACTIVATION_EXACT_GELU && c.biases == BIASES_BLOCK && !r.norms_unbiased);
    assert_true(r.dropout_embedding == 0.25 && r.dropout_residual == 0.25 && r.dropout_attention == 0.25);
    assert_true(o.biases == BIASES_NONE && o.norms_unbiased && o.F == 37 && o.init_std == 0.3 && o.eps == 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_other_families_are_refused), cmocka_unit_test(a_missing_option_is_named),
        cmocka_unit_test(every_family_is_whole), cmocka_unit_test(olmoe), cmocka_unit_test(qwen2_moe),
        cmocka_unit_test(glm4_moe), cmocka_unit_test(olmo3),
        cmocka_unit_test(granite), cmocka_unit_test(smollm3), cmocka_unit_test(starcoder2),
        cmocka_unit_test(nemotron), cmocka_unit_test(gpt_neox), cmocka_unit_test(nanogpt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
