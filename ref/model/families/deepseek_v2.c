/* deepseek_v2.c -- DeepSeek-V2: latent attention, experts in groups, those that every token goes through, and dense
 * layers first.
 *
 * As in the class of transformers, weights of choices are not normalized and the latents' norms have an epsilon of
 * their own.  The balance loss of each sequence, aux_loss_alpha, is in DeepSeek's own code but not in that class.
 * Along tp latents and their norms are computed whole on every device, and heads are cut (run_latent.c).
 *
 * Source  DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  deepseek_v3.c and
 *         glm4_moe.c use tables of this file.  Errors: ERR_FORMAT with the key.
 */
#include "ref/io/json.h"
#include "ref/model/families/shared.h"
#include "ref/routers/router.h"

static const struct config_reading defaults = {         /* DeepseekV2Config's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-6, .rotary = { .neighbours = true },
           .latent = { .q = 1536, .kv = 512, .v = 128 }, .mixture = { .E = 64, .router = { .scale = 1 } } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .nope = 128, .turned = 64, .shared_experts = 2, .sparse_step = 1,
};

static const struct config_key keys[] = {
    DEEPSEEK_KEYS,
    KEY_ONLY_AS("mlp_bias", "false"),
    { .name = NULL },
};

const struct naming deepseek_v2_naming = {
    DECODER_NAMES, EXPERT_NAMES,
    .of_block = {
        LLAMA_NAMES,
        [Q_LATENT_W] = { .whole = "self_attn.q_a_proj.weight" },
        [Q_LATENT_B] = { .whole = "self_attn.q_a_proj.bias" },
        [Q_NORM_W] = { .whole = "self_attn.q_a_layernorm.weight" },
        [QUERIES_W] = { .whole = "self_attn.q_b_proj.weight" },
        [KV_LATENT_W] = { .whole = "self_attn.kv_a_proj_with_mqa.weight" },
        [KV_LATENT_B] = { .whole = "self_attn.kv_a_proj_with_mqa.bias" },
        [KV_NORM_W] = { .whole = "self_attn.kv_a_layernorm.weight" },
        [KEYS_VALUES_W] = { .whole = "self_attn.kv_b_proj.weight" },
        [ROUTER_W] = { .whole = "mlp.gate.weight" },
        [SHARED_UP_W] = { "mlp.shared_experts.gate_up_proj.weight",
                          { "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight" } },
        [SHARED_DOWN_W] = { .whole = "mlp.shared_experts.down_proj.weight" },
    },
    .router_bias = "mlp.gate.e_score_correction_bias",
    .stream_queries = { .whole = "self_attn.q_proj.weight" },
};

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

#define TO_THE_FEED_FORWARD                                                                                            \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },         .param = LN1_W },                                   \
    { OP_MATRIX,    .out = "attn.q_latent", .in = { "ln_1" },       .param = Q_LATENT_W, .when = HAS_LATENT_QUERIES }, \
    { OP_LATENT_NORM, .out = "attn.q_normed", .in = { "attn.q_latent" },                                               \
      .param = Q_NORM_W, .when = HAS_LATENT_QUERIES },                                                                 \
    { OP_MATRIX,    .out = "attn.q",       .in = { "attn.q_normed" }, .param = QUERIES_W },                            \
    { OP_MATRIX,    .out = "attn.kv_latent", .in = { "ln_1" },       .param = KV_LATENT_W },                           \
    { OP_LATENT_NORM, .out = "attn.kv_normed", .in = { "attn.kv_latent" }, .param = KV_NORM_W },                       \
    { OP_MATRIX,    .out = "attn.kv",      .in = { "attn.kv_normed" }, .param = KEYS_VALUES_W },                       \
    { OP_JOIN,      .out = "attn.qkv",     .in = { "attn.q", "attn.kv", "attn.kv_latent" }, .unseen = true },          \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },                                                     \
    { OP_ATTENTION, .out = "attn.padded",  .in = { "attn.rotated" }, .unseen = true },                                 \
    { OP_NARROW,    .out = "attn.heads",   .in = { "attn.padded" } },                                                  \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W },                                  \
    NODES_JOIN_ATTENTION("attn.out"),                                                                                  \
    NODE_SECOND_NORM

const struct node deepseek_v2_block[] = { TO_THE_FEED_FORWARD, NODES_SHARED_MIXTURE, NODES_JOIN_FEED("mlp.out") },
    deepseek_v2_dense_block[] = { TO_THE_FEED_FORWARD, NODES_DENSE_FEED, NODES_JOIN_FEED("mlp.out") };

/* ---- routers ----------------------------------------------------------------------------------------------------- */

/* Whether the class has a V3's router, else a V2's. */
static bool chooses_by_bias(const struct model_config *config)
{
    return config->family->defaults->c.mixture.router.biased;
}

/* These values are what the router of the class in transformers does, whatever the keys that it does not read say. */
static bool is_of_class(const struct router_rule *rule, bool v3)
{
    const struct router_rule own = {
        .scores = v3 ? SCORES_SIGMOID : SCORES_SOFTMAX, .normalized = v3 && rule->normalized, .scale = rule->scale,
        .biased = v3, .groups = rule->groups, .kept = rule->kept, .sums_two = v3 && rule->groups > 1,
        .bias_update = BIAS_BY_SIGN, .bias_speed = v3 ? rule->bias_speed : 0,
    };
    return router_same(rule, &own);
}

enum error_code class_router_check(const struct config_reading *reading, const char *path, struct error *err)
{
    const struct mixture_config *m = &reading->c.mixture;
    const bool v3 = chooses_by_bias(&reading->c);
    if (reading->another_router || (is_of_class(&m->router, v3) && m->zero == 0)) return OK;
    return fail(err, ERR_FORMAT, "%s: a %s has %s; other routers need orrery_router true: the class of "
                "transformers does not have them", path, reading->c.family->name,
                v3 ? "topk_method \"noaux_tc\" and scoring_func \"sigmoid\""
                   : "topk_method \"greedy\" or \"group_limited_greedy\", scoring_func \"softmax\" and norm_topk_prob "
                     "false");
}

static bool groups_to_json(const struct router_rule *rule, cJSON *root)
{
    return cJSON_AddNumberToObject(root, "n_group", rule->groups > 1 ? (double)rule->groups : 1) &&
           json_add(root, "topk_group %g", rule->groups > 1 ? (double)rule->kept : 1);
}

/* router_bias_speed is Orrery's: the class of transformers does not move biases. */
static bool own_router_to_json(const struct router_rule *rule, bool v3, cJSON *root)
{
    const bool groups = rule->groups > 1;
    const char *method = v3 ? "noaux_tc" : groups ? "group_limited_greedy" : "greedy";
    bool ok = cJSON_AddStringToObject(root, "topk_method", method) && (!(groups || v3) || groups_to_json(rule, root)) &&
              config_add_real(root, "routed_scaling_factor", rule->scale);
    if (v3)
        ok = cJSON_AddStringToObject(root, "scoring_func", "sigmoid") &&
             cJSON_AddBoolToObject(root, "norm_topk_prob", rule->normalized) &&
             (rule->bias_speed == 0 || cJSON_AddNumberToObject(root, "router_bias_speed", rule->bias_speed)) && ok;
    return ok;
}

/* Any other, with all its keys and the one that says that they hold. */
static bool another_router_to_json(const struct mixture_config *config, cJSON *root)
{
    return cJSON_AddTrueToObject(root, "orrery_router") && router_to_json(&config->router, root) &&
           (config->router.groups > 1 || groups_to_json(&config->router, root)) && zero_experts_to_json(config, root);
}

bool class_router_to_json(const struct model_config *config, cJSON *root)
{
    const struct mixture_config *m = &config->mixture;
    const bool v3 = chooses_by_bias(config);
    return is_of_class(&m->router, v3) && m->zero == 0 ? own_router_to_json(&m->router, v3, root)
                                                       : another_router_to_json(m, root);
}

bool class_losses_to_json(const struct model_config *config, cJSON *root)
{
    return config->mixture.sequence_coefficient == 0 ||
           (cJSON_AddNumberToObject(root, "aux_loss_alpha", config->mixture.sequence_coefficient) &&
            cJSON_AddTrueToObject(root, "seq_aux"));
}

/* ---- a whole file ------------------------------------------------------------------------------------------------ */

enum error_code deepseek_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    enum error_code e = mixture_finish(reading, path, err);
    if (!e) e = class_router_check(reading, path, err);
    if (e) return e;
    if (c->latent.kv == 0 || reading->nope == 0 || reading->turned == 0 || c->latent.v == 0)
        return fail(err, ERR_FORMAT, "%s: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim must be "
                    "numbers", path);
    if (c->K != 0 && c->K != c->H)
        return fail(err, ERR_FORMAT, "%s: num_key_value_heads is %lld; with latent attention it must be "
                    "num_attention_heads, %lld", path, (long long)c->K, (long long)c->H);
    e = dense_layers_finish(reading, path, err);
    if (e) return e;
    c->K = c->H, c->A = reading->nope + reading->turned;
    if (reading->attention_bias) c->biases |= BIASES_LATENT_ATTENTION;
    c->mixture.shared = reading->shared_experts * c->F;
    c->padding = padding_of(reading);
    e = rotary_from_json(reading, root, path, err);
    c->rotary.turned = reading->turned;
    return e;
}

bool deepseek_to_json(const struct model_config *config, cJSON *root)
{
    const struct mixture_config *m = &config->mixture;
    const bool v3 = chooses_by_bias(config);
    const struct { const char *key; double value; } number[] = {
        { "max_position_embeddings", (double)config->S }, { "hidden_size", (double)config->D },
            { "vocab_size", (double)config->V },
        { "num_attention_heads", (double)config->H }, { "num_key_value_heads", (double)config->K },
        { "num_hidden_layers", (double)config->L }, { "moe_intermediate_size", (double)config->F },
        { "intermediate_size", (double)(config->dense.F ? config->dense.F : config->F) },
            { "rms_norm_eps", config->eps },
        { "first_k_dense_replace", (double)layer_set_count(&config->dense.at, config->L) },
        { "initializer_range", config->init_std },
        { "kv_lora_rank", (double)config->latent.kv }, { "qk_nope_head_dim", (double)nope_width(config) },
        { "qk_rope_head_dim", (double)config->rotary.turned }, { "v_head_dim", (double)config->latent.v },
        { "n_routed_experts", (double)m->E }, { "num_experts_per_tok", (double)m->k },
        { "n_shared_experts", (double)(m->shared / config->F) },
    };
    bool ok = cJSON_AddStringToObject(root, "hidden_act", "silu") &&
              class_router_to_json(config, root) &&
              (config->latent.q ? cJSON_AddNumberToObject(root, "q_lora_rank", (double)config->latent.q) != NULL
                           : cJSON_AddNullToObject(root, "q_lora_rank") != NULL);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = config_add_real(root, "attention_dropout", config->dropout_attention) && ok;
    if (config->biases & HAS_BIAS(ROLE_LATENT)) ok = cJSON_AddTrueToObject(root, "attention_bias") && ok;
    if (v3)
        ok = cJSON_AddBoolToObject(root, "rope_interleave", config->rotary.neighbours) &&
             cJSON_AddNumberToObject(root, "num_nextn_predict_layers", 0) && ok;
    return class_losses_to_json(config, root) && rotary_to_json(config, root) && ok;
}

const struct family family_deepseek_v2 = {
    .name = "deepseek_v2", .title = "a DeepSeek", .architecture = "DeepseekV2ForCausalLM",
    .without_head = "DeepseekV2Model",
    .defaults = &defaults, .keys = keys, .finish = deepseek_finish, .write = deepseek_to_json,
    .naming = &deepseek_v2_naming, .must = { HAS_SHARED_EXPERTS },
    .may = { HAS_LATENT_QUERIES, HAS_LATENT_BIASES, HAS_DENSE_LAYERS },
    .program = { { llama_embedding, deepseek_v2_block, llama_loss, deepseek_v2_dense_block } },
};
