/* The config.json of Gemmas: defaults, refusals that name the key, and what is written reads back.
 * tier: check
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/transformer.h"
#include "tests/ref/config_text.h"
#include <math.h>
#include <string.h>

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 4, " \
              "\"num_attention_heads\": 16, \"max_position_embeddings\": 48"
static const char *const GEMMA = "{\"model_type\": \"gemma\", " SIZES;
static const char *const GEMMA2 = "{\"model_type\": \"gemma2\", " SIZES;
static const char *const GEMMA3 = "{\"model_type\": \"gemma3_text\", " SIZES;

/* GemmaConfig's own; its class gives token 0 no gradient unless pad_token_id says otherwise. */
static void defaults(void **state)
{
    (void)state;
    const struct model_config c = parsed(GEMMA, "");
    assert_ptr_equal(c.family, &family_gemma);
    assert_true(c.H == 16 && c.K == 16 && c.A == 256 && c.tied && !c.biases && c.mlp == MLP_GEGLU);
    assert_true(c.norms_from_one && c.scaled_embedding && c.eps == 1e-6 && c.rotary.theta == 10000);
    assert_true(c.padding == 1 && parsed(GEMMA, "\"pad_token_id\": null").padding == 0);
    const struct param_spec norm = model_param(&c, param_of_block(&c, 1, LN1_W)),
                            final = model_param(&c, param_final_norm(&c));
    assert_true(norm.mean == 0 && norm.std == 0 && final.mean == 0);
    assert_true(parsed(GEMMA, "\"attention_bias\": true").biases ==
                (HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT)));
    assert_int_equal(parsed(GEMMA, "\"hidden_act\": \"gelu\", \"hidden_activation\": null, \"head_dim\": 6").A, 6);
}

static void expect_windows(const struct model_config *c, const char *kinds)
{
    assert_int_equal(c->L, strlen(kinds));
    for (int64_t l = 0; l < c->L; l++)
        if ((model_window(c, l) > 0) != (kinds[l] == 's')) fail_msg("layer %d is no %c", (int)l, kinds[l]);
}

/* Gemma2Config's and Gemma3TextConfig's own. */
static void defaults_of_later_ones(void **state)
{
    (void)state;
    const struct model_config two = parsed(GEMMA2, ""), three = parsed(GEMMA3, "");
    assert_ptr_equal(two.family, &family_gemma2);
    assert_ptr_equal(three.family, &family_gemma3);
    assert_true(two.K == 4 && two.A == 256 && two.tied && two.norms_at == NORMS_AROUND && !two.head_norms);
    assert_true(two.score_width == 256 && two.score_cap == 50 && two.logit_cap == 30 && two.windows.size == 4096);
    assert_true(two.rotary.theta == 10000 && two.local_theta == 0 && attention_scale(&two) == 1.0 / 16);
    expect_windows(&two, "sfsf");
    assert_true(three.K == 4 && three.head_norms && three.norms_at == NORMS_AROUND && three.score_width == 256);
    assert_true(three.score_cap == 0 && three.logit_cap == 0 && three.windows.size == 4096);
    assert_true(three.rotary.theta == 1000000 && three.local_theta == 10000);
    expect_windows(&three, "ssss");
    assert_true(model_param(&three, param_of_block(&three, 0, AFTER2_W)).mean == 0);
}

/* What says which layers have a window, and their rotary positions, in the forms of several versions. */
static void layers_of_two_kinds(void **state)
{
    (void)state;
    struct model_config c = parsed(GEMMA3, "\"sliding_window_pattern\": 3");
    expect_windows(&c, "ssfs");
    c = parsed(GEMMA3, "\"_sliding_window_pattern\": 2, \"layer_types\": null");
    expect_windows(&c, "sfsf");
    c = parsed(GEMMA2, "\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", "
                       "\"full_attention\"], \"sliding_window\": 7");
    expect_windows(&c, "ffsf");
    assert_true(c.windows.size == 7);
    c = parsed(GEMMA3, "\"rope_theta\": 700, \"rope_local_base_freq\": 30, \"sliding_window_pattern\": 2, "
                       "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}");
    assert_true(c.rotary.theta == 700 && c.rotary.scaling == SCALING_LINEAR && c.rotary.factor == 8);
    const struct rotary near = model_rotary(&c, 0), far = model_rotary(&c, 1);
    assert_true(near.theta == 30 && near.scaling == SCALING_NONE && far.theta == 700 && far.factor == 8);
    c = parsed(GEMMA3, "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 900}, "
                       "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 40}}");
    assert_true(c.rotary.theta == 900 && c.local_theta == 40);
    c = parsed(GEMMA3, "\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 40}}");
    assert_true(c.rotary.theta == 1000000 && c.local_theta == 40);
}

/* As transformers has it: sqrt(3072) = 55.4256 is 55.5 in bf16. */
static void the_factor_is_rounded(void **state)
{
    (void)state;
    struct model_config c = parsed(GEMMA, "");
    c.D = 3072;
    if (model_factor(&c, FACTOR_EMBEDDING, BF16) != 55.5)
        fail_msg("the factor in bf16 is %.17g", model_factor(&c, FACTOR_EMBEDDING, BF16));
    assert_true(model_factor(&c, FACTOR_EMBEDDING, F32) == sqrtf(3072));
    assert_true(model_factor(&c, FACTOR_EMBEDDING, F64) == sqrt(3072));
    assert_true(model_factor(&c, FACTOR_EMBEDDING, F16) == 55.4375);
    c.scaled_embedding = false;
    assert_true(model_factor(&c, FACTOR_EMBEDDING, BF16) == 1);
}

static void what_we_have_not_is_refused(void **state)
{
    (void)state;
    static const struct { const char *const *start, *more, *says; } bad[] = {
        { &GEMMA, "\"hidden_act\": \"silu\"",
          "hidden_act is \"silu\"; Orrery has only \"gelu_pytorch_tanh\" or \"gelu\"" },
        { &GEMMA, "\"hidden_activation\": \"gelu\"", "hidden_activation is \"gelu\"" },
        { &GEMMA, "\"use_bidirectional_attention\": true", "use_bidirectional_attention is true" },
        { &GEMMA, "\"mlp_bias\": false", "does not know the key \"mlp_bias\"" },
        { &GEMMA, "\"head_dim\": 7", "heads are A=7 wide; rotary positions need an even width" },
        { &GEMMA, "\"query_pre_attn_scalar\": 8", "does not know the key \"query_pre_attn_scalar\"" },
        { &GEMMA, "\"architectures\": [\"GemmaForSequenceClassification\"]", "architectures has" },
        { &GEMMA2, "\"attn_logit_softcapping\": 0", "attn_logit_softcapping is 0; it must be above 0" },
        { &GEMMA2, "\"final_logit_softcapping\": -3", "final_logit_softcapping is -3; it must be above 0" },
        { &GEMMA2, "\"query_pre_attn_scalar\": 0", "query_pre_attn_scalar is 0; it must be above 0" },
        { &GEMMA2, "\"sliding_window\": null", "sliding_window is null; a model of this model_type has a number" },
        { &GEMMA2, "\"layer_types\": [\"full_attention\"]", "layer_types must be a list of one word for each of 4" },
        { &GEMMA2, "\"rope_local_base_freq\": 30", "does not know the key \"rope_local_base_freq\"" },
        { &GEMMA2, "\"rope_parameters\": {\"full_attention\": {}, \"sliding_attention\": {}}",
          "does not know the key \"sliding_attention\"" },
        { &GEMMA2, "\"use_bidirectional_attention\": true", "use_bidirectional_attention is true" },
        { &GEMMA3, "\"attn_logit_softcapping\": 50.0", "attn_logit_softcapping is 50" },
        { &GEMMA3, "\"rope_local_base_freq\": 0", "rope_local_base_freq is 0; it must be above 0" },
        { &GEMMA3, "\"sliding_window_pattern\": null", "sliding_window_pattern is null; it must be a number" },
        { &GEMMA3, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}", "call it rope_type" },
        { &GEMMA3, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, \"truncate\": false, "
                   "\"original_max_position_embeddings\": 9}", "truncate is false, which transformers 5 passes over" },
        { &GEMMA3, "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 8}}",
          "of layers with a window Orrery has only \"default\"" },
        { &GEMMA3, "\"rope_local_base_freq\": 30, \"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 40}}",
          "rope_local_base_freq is 30, in rope_parameters it is 40" },
        { &GEMMA3, "\"architectures\": [\"Gemma3ForConditionalGeneration\"]", "architectures has" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct error err;
        if (parse(&c, *bad[i].start, bad[i].more, &err) == OK) fail_msg("%s is accepted", bad[i].more);
        if (strstr(err.text, bad[i].says) == NULL)
            fail_msg("%s: \"%s\", which does not say \"%s\"", bad[i].more, err.text, bad[i].says);
    }
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    const struct { const char *const *start, *more; } files[] = {
        { &GEMMA, "" },
        { &GEMMA, "\"pad_token_id\": null, \"tie_word_embeddings\": false, \"head_dim\": 6, \"rope_theta\": 50.5, "
                  "\"num_key_value_heads\": 2, \"attention_bias\": true, \"hidden_act\": \"gelu\"" },
        { &GEMMA2, "" }, { &GEMMA3, "" },
        { &GEMMA2, "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": 0.1, \"query_pre_attn_scalar\": 7, "
                   "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
                   "\"full_attention\"]" },
        { &GEMMA2, "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
                   "\"full_attention\"]" },
        { &GEMMA3, "\"final_logit_softcapping\": 3.5, \"sliding_window_pattern\": 3, \"rope_local_base_freq\": 20.5, "
                   "\"sliding_window\": 5, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}" },
        { &GEMMA3, "\"sliding_window_pattern\": 1" },
        { &GEMMA3, "\"head_dim\": 4, \"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 1.5], "
                   "\"long_factor\": [2, 3.5], \"original_max_position_embeddings\": 7}" },
        { &GEMMA, "\"pad_token_id\": 17, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}" },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct model_config c = parsed(*files[i].start, files[i].more);
        struct model_config back;
        struct error err;
        struct model_number a[MODEL_NUMBERS], b[MODEL_NUMBERS];
        if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        assert_ptr_equal(back.family, c.family);
        assert_true(back.padding == c.padding && back.biases == c.biases && back.init_std == c.init_std);
        const int n = model_config_numbers(&c, a);
        assert_int_equal(model_config_numbers(&back, b), n);
        for (int k = 0; k < n; k++)
            if (a[k].value != b[k].value) fail_msg("%s: %s is read back as another number", files[i].more, a[k].name);
    }
}

/* google/gemma-2b and gemma-7b: the model cards' 2.5 and 8.5 billion parameters; gemma-2-2b's and gemma-3-1b-pt's of
 * their tables. */
static void published_sizes(void **state)
{
    (void)state;
    static const char *const start = "{\"model_type\": \"gemma\", \"vocab_size\": 256000, "
                                     "\"max_position_embeddings\": 8192";
    const struct model_config
        two = parsed(start, "\"hidden_size\": 2048, \"intermediate_size\": 16384, \"num_hidden_layers\": 18, "
                            "\"num_attention_heads\": 8, \"num_key_value_heads\": 1"),
        seven = parsed(start, "\"hidden_size\": 3072, \"intermediate_size\": 24576, \"num_hidden_layers\": 28, "
                              "\"num_attention_heads\": 16");
    assert_int_equal(model_elements(&two), 2506172416);
    assert_int_equal(model_elements(&seven), 8537680896);

    const struct model_config
        gemma2 = parsed("{\"model_type\": \"gemma2\", \"vocab_size\": 256000", "\"hidden_size\": 2304, "
                        "\"intermediate_size\": 9216, \"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
                        "\"num_key_value_heads\": 4, \"max_position_embeddings\": 8192, \"cache_implementation\": "
                        "\"hybrid\", \"sliding_window_size\": 4096"),
        gemma3 = parsed("{\"model_type\": \"gemma3_text\", \"vocab_size\": 262144", "\"hidden_size\": 1152, "
                        "\"intermediate_size\": 6912, \"num_hidden_layers\": 26, \"num_attention_heads\": 4, "
                        "\"num_key_value_heads\": 1, \"max_position_embeddings\": 32768, \"sliding_window\": 512, "
                        "\"rope_scaling\": null");
    assert_int_equal(model_elements(&gemma2), 2614341888);
    assert_int_equal(model_elements(&gemma3), 999885952);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(defaults_of_later_ones),
        cmocka_unit_test(layers_of_two_kinds),
        cmocka_unit_test(the_factor_is_rounded),
        cmocka_unit_test(what_we_have_not_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(published_sizes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
