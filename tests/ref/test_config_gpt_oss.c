/* The config.json of a GPT-OSS: defaults, windows, refusals that name the key, published sizes; what is written reads
 * back.
 * tier: check
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include "tests/ref/config_text.h"
#include <math.h>
#include <string.h>

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 5, " \
              "\"num_attention_heads\": 16, \"max_position_embeddings\": 4800"
static const char *const GPT_OSS = "{\"model_type\": \"gpt_oss\", " SIZES;

/* GptOssConfig's own. */
static void defaults(void **state)
{
    (void)state;
    const struct model_config c = parsed(GPT_OSS, "");
    assert_ptr_equal(c.family, &family_gpt_oss);
    assert_true(c.K == 8 && c.A == 64 && !c.tied && c.sinks && c.eps == 1e-5 && c.padding == 0);
    assert_true(c.mixture.E == 128 && c.mixture.k == 4 && c.mixture.router.normalized);
    assert_true(c.mixture.clamped.alpha == 1.702 && c.mixture.clamped.limit == 7);
    assert_true(c.mixture.balance_coefficient == 0);                           /* output_router_logits is false */
    assert_true(c.biases == (BIASES_BLOCK | HAS_BIAS(ROLE_ROUTER)));
    assert_true(c.windows.size == 128 && c.windows.layers[0] == 0x15);
    assert_true(c.rotary.theta == 150000 && c.rotary.scaling == SCALING_YARN && c.rotary.factor == 32);
    assert_true(c.rotary.low_frequency == 1 && c.rotary.high_frequency == 32 && c.rotary.between_pairs);
    assert_true(c.rotary.original_positions == 4096 && c.rotary.enlarged == 0.1 * log(32) + 1);
    const struct param_spec sinks = model_param(&c, param_of_block(&c, 1, SINKS));
    assert_true(sinks.ndim == 1 && sinks.dim[0] == 16 && !sinks.decay && sinks.std == 0.02);
    assert_string_equal(sinks.part[0].name, "model.layers.1.self_attn.sinks");
}

static void windows(void **state)
{
    (void)state;
    assert_true(parsed(GPT_OSS, "\"sliding_window\": 9").windows.layers[0] == 0x15);
    const struct model_config c = parsed(
        GPT_OSS, "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
                 "\"full_attention\", \"full_attention\"]");
    assert_true(c.windows.size == 128 && c.windows.layers[0] == 6);
    assert_true(parsed(GPT_OSS, "\"sliding_window\": null").windows.size == 0);
}

static void what_we_have_not_is_refused(void **state)
{
    static const struct { const char *more, *says; } bad[] = {
        { "\"swiglu_limit\": 0", "swiglu_limit is 0; it must be above 0" },
        { "\"hidden_act\": \"gelu\"", "hidden_act is \"gelu\"" },
        { "\"n_shared_experts\": 1", "n_shared_experts" },
        { "\"sliding_window\": null, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
          "\"sliding_attention\", \"full_attention\", \"full_attention\"]", "sliding_window is null" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct error err;
        const enum error_code e = parse(&c, GPT_OSS, bad[i].more, &err);
        if (e != ERR_FORMAT || strstr(err.text, bad[i].says) == NULL)
            fail_msg("%s: %s; it must be refused, saying %s", bad[i].more, e ? err.text : "accepted", bad[i].says);
    }
}

/* Another option makes them; no program of a GPT-OSS computes them. */
static void shared_experts_are_refused(void **state)
{
    struct model_config c = parsed(GPT_OSS, "");
    struct error err = { OK, "" };
    (void)state;
    c.mixture.shared = 13;
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_string_equal(err.text, "model: shared experts in a GPT-OSS, which has none");
}

static void what_is_written_reads_back(void **state)
{
    static const char *const more[] = {
        "", "\"attention_bias\": false, \"tie_word_embeddings\": true", "\"sliding_window\": null",
        "\"rope_scaling\": {\"rope_type\": \"default\"}", "\"swiglu_alpha\": 1.5, \"swiglu_limit\": 3.25",
        "\"output_router_logits\": true, \"router_aux_loss_coef\": 0.9, \"head_dim\": 6",
    };
    (void)state;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const struct model_config c = parsed(GPT_OSS, more[i]);
        struct model_config back;
        struct model_number a[MODEL_NUMBERS], b[MODEL_NUMBERS];
        struct error err;
        if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s: %s", more[i], err.text);
        assert_ptr_equal(back.family, &family_gpt_oss);
        assert_true(back.biases == c.biases && back.tied == c.tied && back.init_std == c.init_std);
        const int n = model_config_numbers(&c, a);
        assert_int_equal(model_config_numbers(&back, b), n);
        for (int k = 0; k < n; k++)
            if (a[k].value != b[k].value) fail_msg("%s: %s is read back as another number", more[i], a[k].name);
    }
}

/* The model card's 20.9 and 116.8 billion parameters, table 1 of arXiv:2508.10925; and the presets are these models. */
static void published_sizes(void **state)
{
    static const struct { const char *preset; int layers, experts; int64_t parameters; } released[] = {
        { "gpt-oss-20b", 24, 32, 20914757184 }, { "gpt-oss-120b", 36, 128, 116829156672 },
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model_number a[MODEL_NUMBERS], b[MODEL_NUMBERS];
        struct model_config preset;
        struct error err;
        int64_t batch;
        char text[400];
        snprintf(text, sizeof text, "{\"model_type\": \"gpt_oss\", \"vocab_size\": 201088, \"hidden_size\": 2880, "
                 "\"intermediate_size\": 2880, \"num_hidden_layers\": %d, \"num_attention_heads\": 64, "
                 "\"num_local_experts\": %d, \"max_position_embeddings\": 131072, \"experts_per_token\": 4, "
                 "\"initial_context_length\": 4096", released[i].layers, released[i].experts);
        const struct model_config c = parsed(text, "");
        assert_int_equal(model_config_preset(&preset, &batch, released[i].preset, &err), OK);
        assert_int_equal(model_elements(&c), released[i].parameters);
        assert_int_equal(model_elements(&preset), released[i].parameters);
        const int n = model_config_numbers(&c, a);
        assert_int_equal(model_config_numbers(&preset, b), n);
        for (int k = 0; k < n; k++)
            if (a[k].value != b[k].value) fail_msg("%s: %s is another number", released[i].preset, a[k].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(windows), cmocka_unit_test(what_we_have_not_is_refused),
        cmocka_unit_test(shared_experts_are_refused), cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(published_sizes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
