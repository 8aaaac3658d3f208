/* The config.json of Llama and Mixtral: values, refusals that name the key, and the lists of parameters.
 * tier: check
 */
#include "ref/routers/router.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "tests/ref/scratch.h"
#include <math.h>

#define SIZES "\"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 2, " \
              "\"num_attention_heads\": 6, " \
              "\"max_position_embeddings\": 11"
static const char *const LLAMA = "{\"model_type\": \"llama\", " SIZES;
static const char *const MIXTRAL = "{\"model_type\": \"mixtral\", " SIZES;

/* The document with more keys.  A Mixtral that says nothing has 8 key/value heads, which 6 heads cannot share. */
static enum error_code parse(struct model_config *c, const char *start, const char *more, struct error *err)
{
    char text[1000];
    const bool heads = start == MIXTRAL && strstr(more, "num_key_value_heads") == NULL;
    *err = (struct error){ OK, "" };
    snprintf(text, sizeof text, "%s%s%s%s}", start, heads ? ", \"num_key_value_heads\": null" : "", more[0] ? ", " : "",
             more);
    return model_config_parse(c, text, "config.json", err);
}

static struct model_config parsed(const char *start, const char *more)
{
    struct model_config c;
    struct error err;
    if (parse(&c, start, more, &err) != OK) fail_msg("%s: %s", more, err.text);
    return c;
}

static void llama_is_read(void **state)
{
    (void)state;
    const struct model_config
        plain = parsed(LLAMA, ""),
        c = parsed(
            LLAMA,
            "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "
            "\"attention_bias\": false, \"mlp_bias\": false, \"hidden_act\": \"swish\", \"head_dim\": 4, "
            "\"pretraining_tp\": 1, \"use_cache\": true, "
            "\"tie_word_embeddings\": true, \"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, "
            "\"high_freq_factor\": 4.0, "
            "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"torch_dtype\": \"bfloat16\"");
    assert_ptr_equal(plain.family, &family_llama);
    /* LlamaConfig's defaults */
    assert_true(plain.H == 6 && plain.K == 6 && plain.A == 4 && plain.F == 37 && !plain.tied && !plain.biases);
    assert_true(plain.eps == 1e-6 && plain.rotary.theta == 10000 && plain.rotary.scaling == SCALING_NONE);
    assert_true(c.K == 2 && c.tied && c.eps == 1e-5 && c.rotary.theta == 500000 && c.rotary.scaling == SCALING_LLAMA3);
    assert_true(c.rotary.factor == 8 && c.rotary.low_frequency == 1 && c.rotary.high_frequency == 4 &&
                c.rotary.original_positions == 8192);
    const struct model_config linear = parsed(LLAMA, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}");
    assert_true(linear.rotary.scaling == SCALING_LINEAR && linear.rotary.factor == 2.5);
    assert_true(parsed(LLAMA, "\"rope_scaling\": null").rotary.scaling == SCALING_NONE);
}

/* transformers leaves the balance loss out unless it is told to put the routers' logits out. */
static void mixtral_is_read(void **state)
{
    (void)state;
    const struct model_config plain = parsed(MIXTRAL, "");
    assert_ptr_equal(plain.family, &family_mixtral);
    assert_true(plain.mixture.E == 8 && plain.mixture.k == 2 && plain.mixture.router.normalized &&
                plain.rotary.theta == 1e6 &&
                plain.eps == 1e-5);
    assert_true(plain.mixture.balance_coefficient == 0 && plain.mixture.z_coefficient == 0);
    const struct model_config c =
        parsed(MIXTRAL, "\"num_local_experts\": 5, \"num_experts_per_tok\": 3, \"router_aux_loss_coef\": 0.02, "
                        "\"output_router_logits\": true, \"router_z_loss_coef\": 0.001");
    assert_true(c.mixture.E == 5 && c.mixture.k == 3 && c.mixture.balance_coefficient == 0.02 &&
                c.mixture.z_coefficient == 0.001);
}

/* DeepSeek counts shared experts, each as wide as the others; Qwen says how wide they are. */
static void shared_experts_are_read(void **state)
{
    struct model_config c;
    struct error err;
    char text[1000];
    (void)state;
    assert_int_equal(parsed(MIXTRAL, "").mixture.shared, 0);
    c = parsed(MIXTRAL, "\"n_shared_experts\": 2");
    assert_true(c.mixture.shared == 2 * c.F && !c.mixture.shared_gate);
    c = parsed(MIXTRAL, "\"shared_expert_intermediate_size\": 11, \"shared_expert_gate\": true");
    assert_true(c.mixture.shared == 11 && c.mixture.shared_gate);
    snprintf(text, sizeof text, "%s, \"n_shared_experts\": 2, \"shared_expert_intermediate_size\": 11}", MIXTRAL);
    assert_int_equal(model_config_parse(&c, text, "m", &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "n_shared_experts is 2"));
    snprintf(text, sizeof text, "%s, \"shared_expert_gate\": true}", MIXTRAL);
    assert_int_equal(model_config_parse(&c, text, "m", &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "a gate of shared experts, and there are none"));
}

/* What transformers takes where a file says nothing, or null. */
static void mixtral_has_eight_key_value_heads(void **state)
{
    (void)state;
    static const char *const sizes =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 37, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 16, \"max_position_embeddings\": 11";
    assert_int_equal(parsed(sizes, "").K, 8);
    assert_int_equal(parsed(sizes, "\"num_key_value_heads\": null").K, 16);
}

/* transformers gives the row of pad_token_id no gradient as an input.
 * We have no such row, so such an input is refused. */
static void padding_is_no_input(void **state)
{
    (void)state;
    static const struct { const char *more; int64_t padding; } good[] = {
        { "", 0 }, { "\"pad_token_id\": null", 0 }, { "\"pad_token_id\": 0", 1 }, { "\"pad_token_id\": 60", 61 },
        { "\"pad_token_id\": -1", 61 },
    };
    static const int32_t ids[] = { 3, 60, 7 };
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct model_config c = parsed(LLAMA, good[i].more);
        assert_int_equal(c.padding, good[i].padding);
        assert_int_equal(model_config_check_inputs(&c, ids, 1, "ids", &err), OK);
        assert_int_equal(model_config_check_inputs(&c, ids, 3, "ids", &err), c.padding == 61 ? ERR_PLAN : OK);
        if (c.padding == 61) assert_says(good[i].more, err.text, "ids: token 60 is the model's pad_token_id");
    }
}

static void what_we_have_not_is_refused(void **state)
{
    (void)state;
    static const struct { const char *more, *says; } bad[] = {
        { "\"hidden_act\": \"gelu\"", "hidden_act is \"gelu\"; Orrery has only \"silu\"" },
        { "\"attention_bias\": null", "\"attention_bias\" is null" },
        { "\"mlp_bias\": 1", "\"mlp_bias\" is 1" },
        { "\"rope_interleaved\": true", "rope_interleaved is true; Orrery has only false" },
        { "\"partial_rotary_factor\": 0.5", "partial_rotary_factor is 0.5; Orrery has only 1 or null" },
        { "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
          "layer_types has \"sliding_attention\", and attention of this model_type has no windows" },
        { "\"layer_types\": [\"full_attention\"]",
          "layer_types must be a list of one word for each of 2 layers" },
        { "\"layer_types\": [\"full_attention\", \"chunked_attention\"]",
          "layer_types has \"chunked_attention\"; Orrery has only \"full_attention\" and \"sliding_attention\"" },
        { "\"layer_types\": [3, \"full_attention\"]", "layer_types has \"\"; Orrery has only" },
        { "\"layer_types\": 3", "layer_types\" is 3; it must be" },
        { "\"pad_token_id\": \"x\"", "pad_token_id" },
        { "\"rope_theta\": null", "\"rope_theta\" is null" },
        { "\"rope_parameter\": {}", "does not know the key \"rope_parameter\"|did you mean \"rope_parameters\"?" },
        { "\"mup_scale\": 3", "does not know the key \"mup_scale\"" },
        { "\"head_dim\": 7", "heads are A=7 wide; rotary positions need an even width" },
        { "\"rope_scaling\": 3", "rope_scaling" },
        { "\"rope_theta\": 0", "theta 0; it must be above 0" },
        { "\"num_key_value_heads\": 4", "H=6 heads are not a multiple of K=4" },
        { "\"num_key_value_heads\": 0", "num_key_value_heads" },
        { "\"rms_norm_eps\": 0", "rmsnorm epsilon 0" },
    };
    static const struct { const char *more, *says; } worse[] = {
        { "\"num_experts_per_tok\": 9", "k (experts of a token) = 9; it must be from 1 to E=8" },
        { "\"num_local_experts\": 100000", "E (experts) = 100000" },
        { "\"zero_expert_type\": \"drop\"", "zero_expert_type is \"drop\"; Orrery has only identity and null" },
        { "\"expert_capacity_scope\": \"device\"", "expert_capacity_scope is \"device\"; Orrery has only sequence: a "
                                                   "capacity of a device or a microbatch is another model" },
        { "\"zero_expert_num\": 70000", "70000 experts without computation" },
        { "\"router_jitter_noise\": 0.1", "config.json: router_jitter_noise is 0.1; Orrery has only 0 without" },
        { "\"mlp_dynamic_top_p\": 2", "top-p 2" },
        { "\"router_aux_loss_coef\": -1, \"output_router_logits\": true", "coefficients -1, 0 and 0" },
    };
    struct model_config c;
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(&c, LLAMA, bad[i].more, &err) == OK) fail_msg("%s is accepted", bad[i].more);
        assert_says(bad[i].more, err.text, bad[i].says);
        if (parse(&c, MIXTRAL, bad[i].more, &err) == OK) fail_msg("%s is accepted of a Mixtral", bad[i].more);
    }
    assert_true(parse(&c, LLAMA, "\"sliding_window\": 10", &err) != OK);
    assert_says("a window", err.text, "sliding_window is 10, shorter than max_position_embeddings");
    for (size_t i = 0; i < sizeof worse / sizeof *worse; i++) {
        assert_true(parse(&c, MIXTRAL, worse[i].more, &err) != OK);
        assert_says(worse[i].more, err.text, worse[i].says);
    }
    assert_int_equal(parse(&c, "{\"model_type\": \"llama\", \"vocab_size\": 61", "\"hidden_size\": 24", &err),
                     ERR_FORMAT);
    c = parsed(LLAMA, "");
    c.biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD);
    assert_int_equal(model_config_check(&c, &err), ERR_PLAN);
    assert_says("biases", err.text, "a bias of its output matrix in a Llama, which has none");
    assert_true(parse(&c,
                      "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 30, \"intermediate_size\": 37, "
                      "\"num_hidden_layers\": 2, "
                      "\"num_attention_heads\": 6, \"max_position_embeddings\": 11",
                      "", &err) != OK);
    assert_says("odd width", err.text, "heads are A=5 wide; rotary positions need an even width");
    assert_true(parse(&c,
                      "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 37, "
                      "\"num_hidden_layers\": 2, "
                      "\"num_attention_heads\": 6, \"max_position_embeddings\": 11",
                      "", &err) != OK);
    assert_says("no width", err.text, "width D=32 is not a multiple of H=6 heads, and there is no head_dim");
}

/* A Llama has biases of attention, of the feed-forward, of both or none; with those of queries, keys and values alone
 * it would be a Qwen2. */
static void biases_come_in_two_sets(void **state)
{
    (void)state;
    const char *more[] = { "", "\"attention_bias\": true", "\"mlp_bias\": true",
                           "\"attention_bias\": true, \"mlp_bias\": true" };
    struct error err;
    for (int i = 0; i < 4; i++) {
        struct model_config c = parsed(LLAMA, more[i]);
        if (c.family != &family_llama) fail_msg("%s: it is a %s", more[i], c.family->name);
        const bool attention = i % 2 == 1, feed = i > 1;
        assert_true(model_has_bias(&c, ROLE_QKV) == attention && model_has_bias(&c, ROLE_ATTENTION_OUT) == attention);
        assert_true(model_has_bias(&c, ROLE_UP) == feed && model_has_bias(&c, ROLE_DOWN) == feed);
        assert_true(parse(&c, MIXTRAL, more[i], &err) == (i == 0 ? OK : ERR_FORMAT));
    }
    const struct model_config c = parsed(LLAMA, more[3]);
    const struct param_spec up = model_param(&c, param_of_block(&c, 0, UP_B));
    assert_true(up.ndim == 1 && up.dim[0] == 2 * c.F && up.parts == 2 && up.part[0].rows == c.F && up.std == 0);
    assert_string_equal(up.part[0].name, "model.layers.0.mlp.gate_proj.bias");
}

/* YaRN's numbers have defaults; what is not in the file is written. */
static void yarn_has_defaults(void **state)
{
    (void)state;
    const char *plain = "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                        "\"original_max_position_embeddings\": 9}",
               *both = "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 40, \"beta_fast\": 16, "
                       "\"beta_slow\": 2, \"mscale\": 0.707, \"mscale_all_dim\": 1.0, \"truncate\": false, "
                       "\"original_max_position_embeddings\": 9}";
    struct rotary r = parsed(LLAMA, plain).rotary;
    struct model_config c;
    struct error err;
    assert_true(r.scaling == SCALING_YARN && r.factor == 4 && r.original_positions == 9 && !r.between_pairs);
    assert_true(r.low_frequency == 1 && r.high_frequency == 32 && r.enlarged == 0.1 * log(4) + 1);
    r = parsed(LLAMA, both).rotary;
    assert_true(r.low_frequency == 2 && r.high_frequency == 16 && r.between_pairs);
    assert_true(fabs(r.enlarged - (0.0707 * log(40) + 1) / (0.1 * log(40) + 1)) < 1e-15);
    c = parsed(LLAMA, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}");
    assert_true(c.rotary.original_positions == c.S);
    assert_true(parse(&c, LLAMA, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"low_freq_factor\": 1, "
                                 "\"original_max_position_embeddings\": 9}", &err) != OK);
    assert_says("another's", err.text, "\"low_freq_factor\" is there");
    assert_true(parse(&c, LLAMA, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_slow\": 40, "
                                 "\"original_max_position_embeddings\": 9}", &err) != OK);
    assert_says("order", err.text, "beta_slow 40, beta_fast 32; they must be above 0, and the second not smaller");
}

/* A Qwen3's heads are 128 wide if the file does not say it, whatever D and H are. */
static void heads_have_a_width_of_their_own(void **state)
{
    (void)state;
    const char *qwen3 =
        "{\"model_type\": \"qwen3\", \"vocab_size\": 61, \"hidden_size\": 33, \"intermediate_size\": 37, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 32, \"max_position_embeddings\": 11";
    struct model_config c = parsed(qwen3, "");
    struct error err;
    assert_ptr_equal(c.family, &family_qwen3);
    assert_true(c.head_norms && c.A == 128 && c.K == 32);
    const struct param_spec out = model_param(&c, param_of_block(&c, 1, PROJ_W)),
                            norms = model_param(&c, param_of_block(&c, 1, HEAD_NORM_W));
    assert_true(out.dim[0] == 33 && out.dim[1] == 32 * 128);
    assert_true(norms.ndim == 1 && norms.dim[0] == 256 && norms.parts == 2 && norms.mean == 1 && !norms.decay);
    assert_string_equal(norms.part[1].name, "model.layers.1.self_attn.k_norm.weight");
    c = parsed(qwen3, "\"head_dim\": 6, \"use_sliding_window\": false, \"attention_bias\": false");
    assert_int_equal(c.A, 6);
    c = parsed(qwen3, "\"attention_bias\": true");
    assert_true(c.family == &family_qwen3 && model_has_bias(&c, ROLE_ATTENTION_OUT));
    assert_true(parse(&c, qwen3, "\"mlp_bias\": true", &err) != OK);
    assert_says("bias", err.text, "does not know the key \"mlp_bias\"");
    c = parsed(LLAMA, "\"head_dim\": 10");
    assert_true(c.family == &family_llama && c.A == 10);
    assert_int_equal(model_param(&c, param_of_block(&c, 0, QKV_W)).dim[0], (c.H + 2 * c.K) * 10);
    /* transformers 5 loads a Mixtral with YaRN only if the file says it, also where it is D/H. */
    c = parsed(MIXTRAL, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
                        "\"original_max_position_embeddings\": 9}");
    char *text;
    assert_int_equal(model_config_text(&c, &text, &err), OK);
    assert_non_null(strstr(text, "\"head_dim\":4"));
    free(text);
}

#define QWEN3_MOE                                                                                                      \
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, "           \
    "\"moe_intermediate_size\": 13, \"num_hidden_layers\": 6, \"num_attention_heads\": 4, "                            \
    "\"max_position_embeddings\": 11"

/* Which layers are dense, as transformers has it; that none is by default. */
static void layers_may_be_dense(void **state)
{
    (void)state;
    struct model_config c = parsed(QWEN3_MOE, ""), back;
    struct error err;
    assert_ptr_equal(c.family, &family_qwen3_moe);
    assert_true(c.A == 6 && c.K == 4 && c.F == 13 && c.mixture.E == 128 && c.mixture.k == 8 && c.head_norms);
    assert_true(!c.mixture.router.normalized && mixture_layers(&c) == 6 && c.dense.F == 0);
    c = parsed(QWEN3_MOE, "\"decoder_sparse_step\": 3, \"mlp_only_layers\": [5], \"norm_topk_prob\": true, "
                          "\"num_experts\": 7, \"num_experts_per_tok\": 2");
    assert_true(mixture_layers(&c) == 1 && layer_mlp(&c, 2) == MLP_MIXTURE && layer_mlp(&c, 5) == MLP_SWIGLU);
    assert_true(c.dense.F == 37 && c.mixture.E == 7 && c.mixture.router.normalized);
    const struct param_spec up = model_param(&c, param_of_block(&c, 5, UP_W)),
                            expert = model_param(&c, param_of_expert(&c, 2, 6, DOWN_W));
    assert_string_equal(up.part[1].name, "model.layers.5.mlp.up_proj.weight");
    assert_true(up.dim[0] == 74 && up.part[1].rows == 37 && up.role == ROLE_DENSE_UP);
    assert_string_equal(expert.name, "model.layers.2.mlp.experts.6.down_proj.weight");
    assert_int_equal(param_of_block(&c, 5, ROUTER_W), -1);
    if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    assert_true(back.dense.F == 37 && memcmp(&back.dense.at, &c.dense.at, sizeof c.dense.at) == 0);
    assert_true(back.mixture.router.normalized && back.mixture.E == 7 && back.F == 13);
    for (int i = 1; i < model_param_count(&c); i++)
        assert_true(model_param(&c, i).layer >= model_param(&c, i - 1).layer);

    static const struct { const char *more, *says; } bad[] = {
        { "\"mlp_only_layers\": [6]", "mlp_only_layers has something else than numbers of layers, from 0 to 5" },
        { "\"mlp_only_layers\": [\"1\"]", "mlp_only_layers has something else" },
        { "\"mlp_only_layers\": 1", "mlp_only_layers" },
        { "\"decoder_sparse_step\": 7", "all L=6 layers are dense" },
        { "\"decoder_sparse_step\": 0", "decoder_sparse_step" },
        { "\"num_experts\": 7, \"num_local_experts\": 8", "num_experts is 7, num_local_experts 8" },
        { "\"n_shared_experts\": 1", "does not know the key \"n_shared_experts\"" },
        { "\"num_hidden_layers\": 1025, \"mlp_only_layers\": [3], \"num_experts\": 8", "can be at most 1024" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *start = strstr(bad[i].more, "num_hidden_layers")
            ? "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, "
              "\"moe_intermediate_size\": 13, \"num_attention_heads\": 4, \"max_position_embeddings\": 11" : QWEN3_MOE;
        assert_true(parse(&c, start, bad[i].more, &err) != OK);
        assert_says(bad[i].more, err.text, bad[i].says);
    }
}

#define DEEPSEEK                                                                                                       \
    "{\"model_type\": \"deepseek_v2\", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 37, "         \
    "\"moe_intermediate_size\": 13, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "                            \
    "\"num_experts_per_tok\": 2, \"max_position_embeddings\": 11"

#define DEEPSEEK_V3(layers_)                                                                                           \
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 129280, \"hidden_size\": 7168, "                                \
    "\"intermediate_size\": 18432, "                                                                                   \
    "\"moe_intermediate_size\": 2048, \"num_attention_heads\": 128, \"num_experts_per_tok\": 8, "                      \
    "\"max_position_embeddings\": 4096, \"num_hidden_layers\": " layers_

static void corrections_of_routers_are_read(void **state)
{
    (void)state;
    struct error err;
    struct model_config c = parsed(DEEPSEEK_V3("4"),
                                   "\"first_k_dense_replace\": 1, \"q_lora_rank\": null, \"norm_topk_prob\": false, "
                                   "\"n_group\": 1, \"topk_group\": 1, \"rope_interleave\": true"), back;
    assert_ptr_equal(c.family, &family_deepseek_v3);
    assert_true(c.mixture.router.biased && !c.mixture.router.normalized && c.mixture.router.groups == 0);
    assert_true(c.mixture.router.scores == SCORES_SIGMOID && c.mixture.router.bias_speed == 0 && c.latent.q == 0);
    assert_int_equal(model_router_bias(&c, 0).ndim, 0);
    assert_string_equal(model_router_bias(&c, 2).name, "model.layers.2.mlp.gate.e_score_correction_bias");
    assert_true(c.rotary.neighbours && c.biases == BIASES_NONE);
    if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    assert_true(back.family == &family_deepseek_v3 && !back.mixture.router.normalized);

    static const struct { const char *more, *says; } bad[] = {
        { "\"topk_method\": \"greedy\"", "a deepseek_v3 has topk_method" },
        { "\"scoring_func\": \"softmax\"", "a deepseek_v3 has topk_method" },
        { "\"rope_interleave\": null", "rope_interleave" },
        { "\"n_group\": 3", "3 groups of E=256 experts" },
    };
    const char released[] = "\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
                            "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}";
    if (parse(&c, DEEPSEEK_V3("4"), released, &err) != OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(parse(&c, DEEPSEEK_V3("4"), bad[i].more, &err) != OK);
        assert_says(bad[i].more, err.text, bad[i].says);
    }
}

/* Biases of latents and of the output, not of what comes from latents; halves as rotary pairs, of a V3; LongRoPE. */
static void other_latents_are_read(void **state)
{
    static const char *const start[] = { DEEPSEEK, DEEPSEEK_V3("4") };
    (void)state;
    for (int v3 = 0; v3 < 2; v3++)
        for (int latent = 0; latent < 2; latent++) {
            char more[500];
            snprintf(more, sizeof more, "\"attention_bias\": true, \"qk_rope_head_dim\": 4%s%s, \"rope_scaling\": {"
                     "\"rope_type\": \"longrope\", \"short_factor\": [1, 1.5], \"long_factor\": [2, 3.5], "
                     "\"original_max_position_embeddings\": 7}", latent ? "" : ", \"q_lora_rank\": null",
                     v3 ? ", \"rope_interleave\": false" : "");
            struct model_config c = parsed(start[v3], more), back;
            struct error err;
            const int q = param_of_block(&c, 1, Q_LATENT_B), kv = param_of_block(&c, 1, KV_LATENT_B);
            assert_true(c.biases == BIASES_LATENT_ATTENTION && c.rotary.neighbours == !v3);
            assert_true(c.rotary.scaling == SCALING_LONG && c.rotary.turned == 4 && c.rotary.longer[1] == 3.5);
            assert_true((q >= 0) == latent && model_param(&c, kv).dim[0] == 512 + 4);
            assert_string_equal(model_param(&c, kv).name, "model.layers.1.self_attn.kv_a_proj_with_mqa.bias");
            if (latent) assert_string_equal(model_param(&c, q).name, "model.layers.1.self_attn.q_a_proj.bias");
            assert_true(param_of_block(&c, 1, PROJ_B) >= 0 && param_of_block(&c, 1, QKV_B) < 0);
            if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
            if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
            assert_true(back.biases == c.biases && back.rotary.neighbours == c.rotary.neighbours);
            assert_memory_equal(&back.rotary, &c.rotary, sizeof c.rotary);
        }
}

static void latents_are_read(void **state)
{
    (void)state;
    struct model_config c = parsed(DEEPSEEK, ""), back;
    struct error err;
    assert_ptr_equal(c.family, &family_deepseek_v2);
    assert_true(c.latent.q == 1536 && c.latent.kv == 512 && c.latent.v == 128 && c.A == 192 && c.rotary.turned == 64);
    assert_true(c.K == 4 && c.rotary.neighbours && c.mixture.E == 64 && c.mixture.shared == 26);
    assert_int_equal(mixture_layers(&c), 4);
    c = parsed(DEEPSEEK, "\"first_k_dense_replace\": 2, \"q_lora_rank\": null, \"rope_scaling\": {\"type\": \"yarn\", "
                         "\"factor\": 40, \"original_max_position_embeddings\": 4, \"mscale\": 0.7, "
                         "\"mscale_all_dim\": 0.7}");
    assert_true(mixture_layers(&c) == 2 && c.dense.F == 37 && c.latent.q == 0 && c.rotary.all_dim == 0.7);
    const struct param_spec queries = model_param(&c, param_of_block(&c, 0, QUERIES_W));
    assert_string_equal(queries.name, "model.layers.0.self_attn.q_proj.weight");
    assert_int_equal(param_of_block(&c, 0, Q_LATENT_W), -1);
    if (model_config_write(&c, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
    assert_true(back.rotary.all_dim == 0.7 && back.rotary.enlarged == 1 && mixture_layers(&back) == 2);

    static const struct { const char *more, *says; } bad[] = {
        { "\"num_key_value_heads\": 2", "num_key_value_heads is 2; with latent attention it must be" },
        { "\"v_head_dim\": 193", "values are 193 wide; it must be from 1 to the A=192" },
        { "\"kv_lora_rank\": null", "must be numbers" },
        { "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}",
          "config.json: rope_scaling: short_factor must be a list of 32 numbers" },
        { "\"topk_method\": \"noaux_tc\"", "a deepseek_v2 has topk_method" },
        { "\"norm_topk_prob\": true", "norm_topk_prob" },
        { "\"n_shared_experts\": null", "no shared experts in a DeepSeek" },
        { "\"first_k_dense_replace\": 4", "all L=4 layers are dense" },
        { "\"qk_rope_head_dim\": 3", "an even number" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(parse(&c, DEEPSEEK, bad[i].more, &err) != OK);
        assert_says(bad[i].more, err.text, bad[i].says);
    }
}

/* Every bit of what is written reads back, scaling and mixture included. */
static void what_is_written_reads_back(void **state)
{
    (void)state;
    struct model_config c[7] = { parsed(LLAMA, "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
                                               "\"low_freq_factor\": 1.1, \"high_freq_factor\": 4, "
                                               "\"original_max_position_embeddings\": 20}"),
                                 parsed(LLAMA, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}, "
                                               "\"rope_theta\": 1234.5, \"num_key_value_heads\": 3"),
                                 parsed(MIXTRAL, "\"router_aux_loss_coef\": 0.1, \"output_router_logits\": true, "
                                                 "\"router_z_loss_coef\": 0.3, \"tie_word_embeddings\": true"),
                                 parsed(MIXTRAL, "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", "
                                                 "\"n_group\": 2, \"topk_group\": 1, \"routed_scaling_factor\": 2.7, "
                                                 "\"router_bias_update\": \"share\", \"router_bias_speed\": 0.003, "
                                                 "\"aux_loss_alpha\": 0.01, \"expert_capacity_factor\": 1.3, "
                                                 "\"shared_expert_intermediate_size\": 9, "
                                                 "\"shared_expert_gate\": true, "
                                                 "\"expert_capacity_scope\": \"sequence\", "
                                                 "\"expert_drop_order\": \"weight\""),
                                 parsed(MIXTRAL, "\"topk_method\": \"group_limited_greedy\", \"n_group\": 4, "
                                                 "\"topk_group\": 2, \"norm_topk_prob\": false"),
                                 parsed(MIXTRAL, "\"topk_method\": \"noaux_tc\", \"norm_topk_prob\": false, "
                                                 "\"zero_expert_num\": 3, \"zero_expert_type\": \"null\", "
                                                 "\"router_active_experts\": 1.7"),
                                 parsed(MIXTRAL, "\"scoring_func\": \"near\", \"mlp_dynamic_top_p\": 0.65, "
                                                 "\"router_jitter_noise\": 0.02, \"l_aux_weight\": 0.3") };
    assert_true(c[6].mixture.router.scores == SCORES_NEAR && c[6].mixture.router.top_p == 0.65 &&
                c[6].mixture.router.near == 0.02 && c[6].mixture.sequence_coefficient == 0.3 / (double)c[6].L);
    assert_true(c[5].mixture.zero == 3 && c[5].mixture.zero_is_null && c[5].mixture.router.active == 1.7);
    assert_true(c[3].mixture.router.sums_two && c[3].mixture.router.biased && c[3].mixture.router.bias_speed == 0.003);
    assert_true(c[4].mixture.router.groups == 4 && !c[4].mixture.router.normalized && !c[4].mixture.router.biased);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct model_config back;
        struct error err;
        if (model_config_write(&c[i], scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        if (model_config_read(&back, scratch("config.json"), &err) != OK) fail_msg("%s", err.text);
        const struct rotary *r = &c[i].rotary, *s = &back.rotary;
        const struct mixture_config *m = &c[i].mixture, *n = &back.mixture;
        assert_true(back.K == c[i].K && back.tied == c[i].tied && back.mlp == c[i].mlp && back.F == c[i].F &&
                    back.eps == c[i].eps);
        assert_true(r->theta == s->theta && r->scaling == s->scaling && r->factor == s->factor &&
                    r->low_frequency == s->low_frequency && r->high_frequency == s->high_frequency &&
                    r->original_positions == s->original_positions);
        assert_true(m->E == n->E && m->k == n->k && router_same(&m->router, &n->router) &&
                    m->sequence_coefficient == n->sequence_coefficient && m->capacity_factor == n->capacity_factor &&
                    m->shared == n->shared && m->shared_gate == n->shared_gate &&
                    m->drops_by_weight == n->drops_by_weight && m->zero == n->zero &&
                    m->zero_is_null == n->zero_is_null &&
                    m->balance_coefficient == n->balance_coefficient && m->z_coefficient == n->z_coefficient);
    }
}

/* Published sizes: Llama 3.1 8B has 8.03 billion parameters, Mixtral 8x7B 46.7 billion. */
static void published_sizes(void **state)
{
    (void)state;
    const struct model_config llama = parsed(
        "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 4096, \"intermediate_size\": 14336, "
        "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"max_position_embeddings\": 131072",
        "\"num_key_value_heads\": 8");
    const struct model_config mixtral = parsed(
        "{\"model_type\": \"mixtral\", \"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "
        "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"max_position_embeddings\": 32768",
        "\"num_key_value_heads\": 8");
    assert_true(model_elements(&llama) == 8030261248);
    assert_true(model_elements(&mixtral) == 46702792704);

    struct model_config preset, v3 = parsed(DEEPSEEK_V3("61"), "\"num_nextn_predict_layers\": 1");
    struct error err;
    int64_t batch, biases = 0;
    assert_int_equal(model_config_preset(&preset, &batch, "deepseek-v3", &err), OK);
    for (int64_t l = 0; l < v3.L; l++) biases += model_router_bias(&v3, l).dim[0];
    assert_true(model_elements(&v3) == 671026404352 && biases == 58 * 256);     /* in files 671026419200 */
    assert_true(model_elements(&preset) == model_elements(&v3));
}

/* The list has each parameter once, its places agree with it, and the parts of each make up its rows. */
static void every_parameter_once(void **state)
{
    (void)state;
    static const char *const start[] = { "{\"model_type\": \"llama\", " SIZES, "{\"model_type\": \"mixtral\", " SIZES };
    for (int f = 0; f < 2; f++) {
        const struct model_config c = parsed(start[f], "\"num_key_value_heads\": 2");
        int parts = 0;
        for (int i = 0; i < model_param_count(&c); i++) {
            const struct param_spec s = model_param(&c, i);
            int64_t rows = 0;
            for (int p = 0; p < s.parts; p++, parts++) rows += s.part[p].rows;
            assert_int_equal(rows, s.dim[0]);
            assert_false(s.file_transposed);
            for (int j = 0; j < i; j++) assert_string_not_equal(model_param(&c, j).name, s.name);
        }
        assert_int_equal(parts, 3 + 2 * (f == 0 ? 9 : 7 + 3 * 8));
        const struct param_spec qkv = model_param(&c, param_of_block(&c, 1, QKV_W)),
                                norm = model_param(&c, param_final_norm(&c));
        assert_string_equal(qkv.name, "model.layers.1.self_attn.qkv_proj.weight");
        assert_true(qkv.dim[0] == 40 && qkv.parts == 3 && qkv.part[0].rows == 24 && qkv.part[2].rows == 8);
        assert_string_equal(qkv.part[1].name, "model.layers.1.self_attn.k_proj.weight");
        assert_string_equal(norm.name, "model.norm.weight");
        assert_string_equal(model_param(&c, param_head(&c)).name, "lm_head.weight");
        assert_int_equal(param_of_block(&c, 0, QKV_B), -1);
        assert_int_equal(param_positions(&c), -1);
        assert_int_equal(param_of_block(&c, 0, ROUTER_W) >= 0, f == 1);
    }
    const struct model_config c = parsed(MIXTRAL, "");
    const struct param_spec up = model_param(&c, param_of_expert(&c, 1, 7, UP_W)),
                            down = model_param(&c, param_of_expert(&c, 1, 7, DOWN_W));
    assert_true(up.expert == 7 && up.layer == 1 && up.role == ROLE_UP && up.dim[0] == 74 && up.parts == 2);
    assert_string_equal(up.part[1].name, "model.layers.1.block_sparse_moe.experts.7.w3.weight");
    assert_string_equal(down.part[0].name, "model.layers.1.block_sparse_moe.experts.7.w2.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_is_read),
        cmocka_unit_test(mixtral_is_read),
        cmocka_unit_test(shared_experts_are_read),
        cmocka_unit_test(mixtral_has_eight_key_value_heads),
        cmocka_unit_test(padding_is_no_input),
        cmocka_unit_test(what_we_have_not_is_refused),
        cmocka_unit_test(biases_come_in_two_sets),
        cmocka_unit_test(yarn_has_defaults),
        cmocka_unit_test(heads_have_a_width_of_their_own),
        cmocka_unit_test(layers_may_be_dense),
        cmocka_unit_test(latents_are_read), cmocka_unit_test(other_latents_are_read),
        cmocka_unit_test(corrections_of_routers_are_read),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(every_parameter_once),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
