/* The shape of a model: config.json with all refusals, presets, and the list of parameters.
 * tier: check
 */
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "tests/ref/scratch.h"

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static const char *const GOOD = "{\"model_type\": \"gpt2\", \"n_positions\": 11, \"n_embd\": 21, \"n_head\": 3, "
                                "\"n_layer\": 2, \"vocab_size\": 61}";

static enum error_code read_text(struct model_config *c, const char *text, struct error *err)
{
    *err = (struct error){ OK, "" };
    put_text(scratch("config.json"), text);
    return model_config_read(c, scratch("config.json"), err);
}

static void reads_what_transformers_writes(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    const char *text = "{\n"
                       "  \"activation_function\": \"gelu_new\",\n  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  "
                       "],\n  \"attn_pdrop\": 0.2,\n"
                       "  \"bos_token_id\": 50256,\n  \"embd_pdrop\": 0.3,\n  \"eos_token_id\": 50256,\n  "
                       "\"initializer_range\": 0.04,\n"
                       "  \"layer_norm_epsilon\": 1e-06,\n  \"model_type\": \"gpt2\",\n  \"n_ctx\": 11,\n  \"n_embd\": "
                       "21,\n  \"n_head\": 3,\n"
                       "  \"n_inner\": null,\n  \"n_layer\": 2,\n  \"n_positions\": 11,\n  "
                       "\"reorder_and_upcast_attn\": false,\n  \"resid_pdrop\": 0.4,\n"
                       "  \"scale_attn_by_inverse_layer_idx\": false,\n  \"scale_attn_weights\": true,\n  "
                       "\"summary_type\": \"cls_index\",\n"
                       "  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"float32\",\n  \"use_cache\": true,\n  "
                       "\"vocab_size\": 61\n}\n";
    if (read_text(&c, text, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(c.S, 11);
    assert_int_equal(c.D, 21);
    assert_int_equal(c.H, 3);
    assert_int_equal(c.A, 7);
    assert_int_equal(c.F, 84);                          /* n_inner null: four times the width */
    assert_int_equal(c.L, 2);
    assert_int_equal(c.V, 61);
    assert_false(c.tied);
    assert_true(c.eps == 1e-6 && c.init_std == 0.04);
    assert_true(c.dropout_attention == 0.2 && c.dropout_embedding == 0.3 && c.dropout_residual == 0.4);
}

/* What a file leaves out is as GPT2Config has it. */
static void fills_in_the_defaults(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    if (read_text(&c, GOOD, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(c.F, 84);
    assert_true(c.tied);
    assert_true(c.eps == 1e-5 && c.init_std == 0.02);
    assert_true(c.dropout_embedding == 0.1 && c.dropout_residual == 0.1 && c.dropout_attention == 0.1);
}

static const char *changed(const char *key, const char *value);

/* A function by its other name. */
static void knows_other_names(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    if (read_text(&c, changed("activation_function", "\"gelu_pytorch_tanh\""), &err) != OK) fail_msg("%s", err.text);
}

/* GOOD with one value changed or one key more; value NULL takes the key away. */
static const char *changed(const char *key, const char *value)
{
    static char text[600];
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(GOOD, quoted);
    if (at == NULL) {
        snprintf(text, sizeof text, "{%s %s, %s", quoted, value, GOOD + 1);
        return text;
    }
    const char *rest = at + strcspn(at, ",}");
    if (value == NULL) snprintf(text, sizeof text, "%.*s\"use_cache\": true%s", (int)(at - GOOD), GOOD, rest);
    else snprintf(text, sizeof text, "%.*s%s %s%s", (int)(at - GOOD), GOOD, quoted, value, rest);
    return text;
}

static void refuses_what_orrery_has_not(void **state)
{
    (void)state;
    static const struct { const char *key, *value; enum error_code code; const char *says; } bad[] = {
        { "model_type", "\"bert\"", ERR_FORMAT, "config.json: model_type is \"bert\"; Orrery has only gpt2, llama, " },
        { "model_type", "3", ERR_FORMAT, "config.json|model_type|string" },
        { "activation_function", "\"relu\"", ERR_FORMAT,
          "config.json: activation_function is \"relu\"; Orrery has only \"gelu_new\" or \"gelu_pytorch_tanh\"" },
        { "activation_function", "\"gelu\"", ERR_FORMAT,
          "activation_function is \"gelu\"; Orrery has only \"gelu_new\" or \"gelu_pytorch_tanh\"" },
        { "scale_attn_weights", "false", ERR_FORMAT, "config.json: scale_attn_weights is false; Orrery has only true" },
        { "scale_attn_weights", "1", ERR_FORMAT, "config.json|scale_attn_weights" },
        { "scale_attn_by_inverse_layer_idx", "true", ERR_FORMAT,
          "scale_attn_by_inverse_layer_idx is true; Orrery has only false" },
        { "reorder_and_upcast_attn", "true", ERR_FORMAT, "reorder_and_upcast_attn is true; Orrery has only false" },
        { "add_cross_attention", "true", ERR_FORMAT, "add_cross_attention is true; Orrery has only false" },
        { "tie_word_embeddings", "\"yes\"", ERR_FORMAT, "config.json|tie_word_embeddings" },
        { "tie_word_embeddings", "null", ERR_FORMAT, "config.json|tie_word_embeddings|null" },
        { "model_type", NULL, ERR_FORMAT, "config.json|\"model_type\" is missing" },
        { "architectures", "[\"GPT2ForSequenceClassification\"]", ERR_FORMAT,
          "config.json: architectures has \"GPT2ForSequenceClassification\"; of model_type \"gpt2\" Orrery has only "
          "\"GPT2LMHeadModel\"" },
        { "architectures", "[\"LlamaForCausalLM\"]", ERR_FORMAT,
          "architectures has \"LlamaForCausalLM\"; of model_type \"gpt2\"" },
        { "n_ctx", "12", ERR_FORMAT, "n_ctx is 12, n_positions is 11; they must be the same" },
        { "pruned_heads", "{\"0\": [1]}", ERR_FORMAT, "pruned_heads is {\"0\":[1]}; Orrery has only {} or null" },
        { "torchscript", "true", ERR_FORMAT, "torchscript is true; Orrery has only false" },
        { "n_heads", "3", ERR_FORMAT,
          "config.json: Orrery does not know the key \"n_heads\"|did you mean \"n_head\"? If it does not, "
          "take it out" },
        { "unheard_of", "3", ERR_FORMAT,
          "does not know the key \"unheard_of\", which may change what the model computes. If it does not, "
          "take it out" },
        { "rope_theta", "10000", ERR_FORMAT, "does not know the key \"rope_theta\"" },

        { "n_embd", NULL, ERR_FORMAT, "config.json|n_embd" },
        { "n_head", NULL, ERR_FORMAT, "config.json|n_head" },
        { "n_layer", NULL, ERR_FORMAT, "config.json|n_layer" },
        { "n_positions", NULL, ERR_FORMAT, "config.json|n_positions" },
        { "vocab_size", NULL, ERR_FORMAT, "config.json|vocab_size" },
        { "n_embd", "\"21\"", ERR_FORMAT, "config.json|n_embd" },
        { "n_embd", "null", ERR_FORMAT, "config.json|n_embd" },
        { "n_embd", "21.5", ERR_FORMAT, "config.json|n_embd|21.5" },
        { "n_embd", "0", ERR_FORMAT, "config.json|n_embd|0" },
        { "n_embd", "-21", ERR_FORMAT, "config.json|n_embd|-21" },
        { "n_embd", "2147483648", ERR_FORMAT, "config.json|n_embd|2147483648" },
        { "n_embd", "1e300", ERR_FORMAT, "config.json|n_embd" },
        { "n_head", "0", ERR_FORMAT, "config.json|n_head|0" },
        { "n_layer", "-1", ERR_FORMAT, "config.json|n_layer|-1" },
        { "n_positions", "0", ERR_FORMAT, "config.json|n_positions|0" },
        { "vocab_size", "-61", ERR_FORMAT, "config.json|vocab_size|-61" },
        { "n_inner", "0", ERR_FORMAT, "config.json|n_inner|0" },
        { "n_inner", "[84]", ERR_FORMAT, "config.json|n_inner" },
        { "layer_norm_epsilon", "\"small\"", ERR_FORMAT, "config.json|layer_norm_epsilon" },
        { "resid_pdrop", "true", ERR_FORMAT, "config.json|resid_pdrop" },

        { "n_head", "4", ERR_PLAN, "width D=21 is not a multiple of H=4 heads" },
        { "n_head", "22", ERR_PLAN, "width D=21 is not a multiple of H=22 heads" },
        { "embd_pdrop", "1", ERR_PLAN, "dropout 1; it must be at least 0 and below 1" },
        { "resid_pdrop", "-0.1", ERR_PLAN, "dropout -0.1; it must be at least 0 and below 1" },
        { "attn_pdrop", "2", ERR_PLAN, "dropout 2; it must be at least 0 and below 1" },
        { "layer_norm_epsilon", "-1", ERR_PLAN, "layernorm epsilon -1; it must be above 0" },
        { "layer_norm_epsilon", "0", ERR_PLAN, "layernorm epsilon 0; it must be above 0" },
        { "initializer_range", "-0.02", ERR_PLAN,
          "standard deviation of initial weights -0.02; it must be at least 0" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct error err;
        char name[120];
        const enum error_code e = read_text(&c, changed(bad[i].key, bad[i].value), &err);
        snprintf(name, sizeof name, "%s: %s", bad[i].key, bad[i].value ? bad[i].value : "(missing)");
        if (e != bad[i].code) fail_msg("%s: code %d, want %d; \"%s\"", name, (int)e, (int)bad[i].code, err.text);
        assert_says(name, err.text, bad[i].says);
    }
}

static void refuses_files_that_are_no_config(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    assert_int_equal(model_config_read(&c, scratch("missing.json"), &err), ERR_FILE);
    assert_says("missing", err.text, "missing.json|No such file");
    assert_int_equal(model_config_read(&c, scratch_folder, &err), ERR_FILE);
    const char *const texts[] = { "", "{", "[]", "3", "null", "\"n_embd\"", "{\"n_embd\": 21", "{\"n_embd\": 21} x" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const enum error_code e = read_text(&c, texts[i], &err);
        if (e != ERR_FORMAT) fail_msg("<%s>: code %d, \"%s\"", texts[i], (int)e, err.text);
        assert_says(texts[i], err.text, "config.json");
    }
}

static void expect_same_config(const struct model_config *a, const struct model_config *b)
{
    assert_int_equal(a->S, b->S);
    assert_int_equal(a->D, b->D);
    assert_int_equal(a->H, b->H);
    assert_int_equal(a->A, b->A);
    assert_int_equal(a->F, b->F);
    assert_int_equal(a->L, b->L);
    assert_int_equal(a->V, b->V);
    assert_int_equal(a->tied, b->tied);
    assert_true(a->eps == b->eps && a->init_std == b->init_std);        /* every bit of a number survives the text */
    assert_true(a->dropout_embedding == b->dropout_embedding && a->dropout_residual == b->dropout_residual
                && a->dropout_attention == b->dropout_attention);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    const struct model_config odd = { .name = "odd",
                                      .S = 11, .D = 21, .H = 3, .K = 3, .A = 7, .F = 37, .L = 2, .V = 61,
                                      .family = &family_gpt2, .biases = BIASES_BLOCK,
                                      .eps = 1.0 / 3e5,
                                      .init_std = 0.1,
                                      .dropout_embedding = 1.0 / 3,
                                      .dropout_residual = 0.1,
                                      .dropout_attention = 0.7 };
    struct model_config back;
    struct error err;
    if (model_config_write(&odd, scratch("odd.json"), &err) != OK) fail_msg("%s", err.text);
    if (model_config_read(&back, scratch("odd.json"), &err) != OK) fail_msg("%s", err.text);
    expect_same_config(&back, &odd);
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        if (model_config_write(&p->config, scratch("preset.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&back, scratch("preset.json"), &err) != OK) fail_msg("%s", err.text);
        expect_same_config(&back, &p->config);
    }
    assert_int_equal(model_config_write(&odd, scratch("no/such/folder.json"), &err), ERR_FILE);
    assert_says("folder", err.text, "no/such/folder.json");
}

/* ---- presets ----------------------------------------------------------------------------------------------------- */

static void presets_are_possible(void **state)
{
    (void)state;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        struct model_config c;
        struct error err = { OK, "" };
        int64_t batch;
        if (model_config_check(&p->config, &err) != OK) fail_msg("%s: %s", p->config.name, err.text);
        assert_int_equal(model_config_preset(&c, &batch, p->config.name, &err), OK);
        expect_same_config(&c, &p->config);
        assert_int_equal(batch, p->batch);
        assert_true(batch > 0);
        assert_non_null(p->description);
    }
}

static void unknown_presets_are_refused(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    int64_t batch;
    assert_int_equal(model_config_preset(&c, &batch, "smal", &err), ERR_USAGE);
    assert_says("smal", err.text, "--model smal|small");
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* GPT-2's published size, with and without an output matrix of its own. */
static void gpt2_has_124_million_parameters(void **state)
{
    (void)state;
    struct model_config c;
    int64_t batch;
    assert_int_equal(model_config_preset(&c, &batch, "gpt2", NULL), OK);
    assert_int_equal(model_elements(&c), 124439808);
    assert_int_equal(model_param_count(&c), 148);
    c.tied = false;
    assert_int_equal(model_elements(&c), 124439808 + 50257 * 768);
    assert_int_equal(model_param_count(&c), 149);
}

static void every_parameter_once(void **state)
{
    (void)state;
    static const char *const want[] = {
        "wte.weight", "wpe.weight",
        "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
        "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
        "ln_f.weight", "ln_f.bias", "lm_head.weight",
    };
    const struct model_config c = { .name = "odd",
                                    .S = 11, .D = 21, .H = 3, .K = 3, .A = 7, .F = 37, .L = 1, .V = 61,
                                    .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02 };
    const int n = sizeof want / sizeof *want;
    assert_int_equal(model_param_count(&c), n);
    for (int i = 0; i < n; i++) {
        const struct param_spec s = model_param(&c, i);
        const bool in_block = strncmp(s.name, "h.", 2) == 0;
        assert_string_equal(s.name, want[i]);
        assert_int_equal(s.decay, s.ndim == 2);                     /* biases and norms do not decay */
        assert_int_equal(s.file_transposed, s.ndim == 2 && in_block);   /* Conv1D */
        assert_int_equal(s.layer, i < 2 ? -1 : in_block ? 0 : 1);
        assert_true(s.mean == (strstr(s.name, "ln_") && strstr(s.name, "weight") ? 1 : 0));
        assert_int_equal(s.std > 0, s.ndim == 2);
    }
    assert_int_equal(param_head(&c), n - 1);
    const struct param_spec qkv = model_param(&c, param_of_block(&c, 0, QKV_W)),
                            up = model_param(&c, param_of_block(&c, 0, UP_W));
    assert_true(qkv.dim[0] == 63 && qkv.dim[1] == 21 && up.dim[0] == 37 && up.dim[1] == 21);     /* [out, in] */
}

/* Of each preset: the list is that of its layers one after another, and who looks for a parameter finds it. */
static void the_list_is_of_layers(void **state)
{
    (void)state;
    for (const struct model_preset *p = model_presets; p->config.name[0]; p++) {
        const struct model_config *c = &p->config;
        const int layers = (int)c->L, step = model_param_count(c) > 2000 ? 97 : 1;
        assert_int_equal(param_of_layer(c, -1), 0);
        assert_int_equal(param_of_layer(c, layers), param_final_norm(c));
        assert_int_equal(param_of_layer(c, layers + 1), model_param_count(c));
        for (int l = 0; l < layers; l++) assert_int_equal(param_of_layer(c, l), param_of_block(c, l, LN1_W));
        for (int i = 0; i < model_param_count(c); i += step) {
            const struct param_spec s = model_param(c, i);
            if (i < param_of_layer(c, s.layer) || i >= param_of_layer(c, s.layer + 1))
                fail_msg("%s: parameter %d, %s, is not where those of layer %d are", c->name, i, s.name, s.layer);
            if (s.expert >= 0 && i != param_of_expert(c, s.layer, s.expert, UP_W) &&
                i != param_of_expert(c, s.layer, s.expert, DOWN_W) && s.ndim == 2)
                fail_msg("%s: parameter %d, %s, is no matrix of expert %d", c->name, i, s.name, s.expert);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_transformers_writes),
        cmocka_unit_test(fills_in_the_defaults),
        cmocka_unit_test(knows_other_names),
        cmocka_unit_test(refuses_what_orrery_has_not),
        cmocka_unit_test(refuses_files_that_are_no_config),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(presets_are_possible),
        cmocka_unit_test(unknown_presets_are_refused),
        cmocka_unit_test(gpt2_has_124_million_parameters),
        cmocka_unit_test(every_parameter_once),
        cmocka_unit_test(the_list_is_of_layers),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
