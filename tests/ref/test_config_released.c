/* A release's config.json under its own names: the family that its models are of, what is refused, and keys that change
 * no number. */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "tests/ref/config_text.h"
#include <math.h>

#define SIZES                                                                                                          \
    ", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 4, " \
    "\"num_attention_heads\": 6, \"max_position_embeddings\": 48"

static const char LLAMA[] = "{\"model_type\": \"llama\"" SIZES, INTERNLM[] = "{\"model_type\": \"internlm\"" SIZES,
                  MIMO[] = "{\"model_type\": \"mimo\"" SIZES, MINICPM[] = "{\"model_type\": \"minicpm\"" SIZES,
                  KIMI[] = "{\"model_type\": \"kimi_k2\"" SIZES ", \"moe_intermediate_size\": 13, "
                           "\"num_experts_per_tok\": 2";

static void releases_are_read_as_their_families(void **state)
{
    (void)state;
    struct model_config c = parsed(KIMI, "\"architectures\": [\"DeepseekV3ForCausalLM\"]");
    assert_true(c.family == &family_deepseek_v3);
    c = parsed(INTERNLM, "\"architectures\": [\"InternLMForCausalLM\"], \"bias\": true");
    assert_true(c.family == &family_llama && c.biases == BIASES_ATTENTION);
    c = parsed(INTERNLM, "\"bias\": false");
    assert_true(c.biases == BIASES_NONE);
    c = parsed(INTERNLM, "");
    assert_true(c.biases == BIASES_ATTENTION);          /* InternLMConfig's default */
    c = parsed(MIMO, "\"attention_bias\": true, \"num_nextn_predict_layers\": 1, \"num_key_value_heads\": 3");
    assert_true(c.family == &family_qwen2 && c.biases == HAS_BIAS(ROLE_QKV));
    c = parsed(MINICPM, "\"scale_emb\": 12, \"scale_depth\": 1.4, \"dim_model_base\": 6");
    const struct multipliers *const m = &c.multipliers;
    assert_true(c.family == &family_granite && m->embedding == 12 && m->logit_divisor == 4);
    assert_true(c.tied);                                /* MiniCPMConfig's default */
    assert_true(m->residual == 0.7 && fabs(m->scores - 0.5) < 1e-15);
}

static void what_a_release_cannot_say_is_refused(void **state)
{
    (void)state;
    static const struct { const char *start, *more, *says; } bad[] = {
        { KIMI, "\"architectures\": [\"KimiK2ForCausalLM\"]",
          "of model_type \"kimi_k2\" Orrery has only \"DeepseekV3ForCausalLM\" and \"DeepseekV3Model\"" },
        { KIMI, "\"another\": 1", "config.json, read as a deepseek_v3: Orrery does not know the key \"another\"" },
        { INTERNLM, "\"bias\": true, \"attention_bias\": true", "bias and attention_bias are there" },
        { INTERNLM, "\"Bias\": true", "Orrery does not know the key \"Bias\"" },
        { INTERNLM, "\"bias\": 3", "config.json, read as a llama: \"attention_bias\" is 3" },
        { MIMO, "\"attention_bias\": false", "attention_bias is not true; a MiMo's attention has biases" },
        { MINICPM, "\"scale_depth\": 1.4, \"dim_model_base\": 6", "\"scale_emb\" is missing" },
        { MINICPM, "\"scale_emb\": 12, \"scale_depth\": 0, \"dim_model_base\": 6",
          "scale_depth is 0; it must be above 0" },
        { "{\"model_type\": \"jamba\"" SIZES, "",
          "config.json: model_type is \"jamba\", which is not read: most layers have a state space (Mamba)" },
        { "{\"model_type\": \"gemma3\"" SIZES, "", "its text model alone, gemma3_text, is read" },
        { "{\"model_type\": \"jambo\"" SIZES, "", "config.json: model_type is \"jambo\"; Orrery has only gpt2, llama" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct error err;
        if (parse(&c, bad[i].start, bad[i].more, &err) == OK) fail_msg("%s is accepted", bad[i].more);
        assert_says(bad[i].more, err.text, bad[i].says);
    }
}

/* A model is the same with them and without. */
static void keys_without_numbers_change_nothing(void **state)
{
    (void)state;
    static const char *const more[] = {
        "\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_x.LlamaForCausalLM\"}", "\"is_llama_config\": true",
        "\"transformers.js_config\": {\"kv_cache_dtype\": {\"q4f16\": \"float16\"}}", "\"pretraining_tp\": 2",
        "\"torch_dtype\": \"bfloat16\"", "\"dtype\": \"bfloat16\"", "\"architectures\": null", "\"head_dim\": null",
        "\"eos_token_id\": [1, 2]", "\"rope_scaling\": null", "\"quantization_config\": {\"quant_method\": \"mxfp4\"}",
        "\"num_key_value_heads\": null", "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}",
        "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
        "\"_from_model_config\": true", "\"neftune_noise_alpha\": 5", "\"max_sequence_length\": 2048",
    };
    const struct model_config plain = parsed(LLAMA, "");
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const struct model_config c = parsed(LLAMA, more[i]);
        if (memcmp(&c, &plain, sizeof c) != 0) fail_msg("with %s another model is read", more[i]);
    }
}

/* transformers 5.24 of a Llama with heads of 32 numbers and YaRN by 8, theta 50000, whose two betas are 1.  From 5
 * tokens on both ends of the ramp are pair 0: _compute_yarn_parameters separates them by 0.001. */
static void equal_betas_are_a_step(void **state)
{
    (void)state;
    static const struct { int original; const char *truncate; double f[16]; } of[] = {
        { 16, "true",
          { 1, 0.50852746, 0.032325018, 0.016438158, 0.0083592543, 0.0042509097, 0.0021617042, 0.0010992858,
            0.000559017, 0.00028427548, 0.00014456187, 7.3513678e-05,
            3.7383721e-05, 1.9010646e-05, 9.6674348e-06, 4.9161558e-06 } },
        { 5, "true",
          { 1, 0.063565932, 0.032325018, 0.016438158, 0.0083592543, 0.0042509097, 0.0021617042, 0.0010992858,
            0.000559017, 0.00028427548, 0.00014456187, 7.3513678e-05,
            3.7383721e-05, 1.9010646e-05, 9.6674348e-06, 4.9161558e-06 } },
        { 5, "false",
          { 1, 0.50852746, 0.25860015, 0.13150527, 0.066874035, 0.034007277, 0.017293634, 0.0087942863,
            0.004472136, 0.0022742038, 0.001156495, 0.00058810943,
            0.00029906977, 0.00015208517, 7.7339479e-05, 3.9329247e-05 } },
    };
    char more[400];
    for (size_t t = 0; t < sizeof of / sizeof *of; t++) {
        snprintf(more, sizeof more, "\"head_dim\": 32, \"rope_theta\": 50000, \"rope_scaling\": {\"type\": \"yarn\", "
                 "\"factor\": 8, \"original_max_position_embeddings\": %d, \"beta_fast\": 1, \"beta_slow\": 1, "
                 "\"truncate\": %s}", of[t].original, of[t].truncate);
        const struct model_config c = parsed(LLAMA, more);
        for (int i = 0; i < 16; i++) {
            const double f = rotary_frequency(&c.rotary, 32, i, 48);
            if (!(fabs(f - of[t].f[i]) <= 2e-6 * f))
                fail_msg("from %d tokens on, truncate %s: pair %d turns by %.9g; transformers turns it by %.9g",
                         of[t].original, of[t].truncate, i, f, of[t].f[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(releases_are_read_as_their_families), cmocka_unit_test(what_a_release_cannot_say_is_refused),
        cmocka_unit_test(keys_without_numbers_change_nothing), cmocka_unit_test(equal_betas_are_a_step),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
