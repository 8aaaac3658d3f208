/* config_deepseek.c -- the config.json of a DeepSeek-V2 or V3 (and R1): latent attention, dense layers first, experts
 * in groups, and experts that every token goes through.
 *
 * As in the class of transformers, weights of choices are not normalized and the latents' norms have an epsilon of
 * their own.  The balance loss of each sequence, aux_loss_alpha, is in DeepSeek's own code but not in that class.
 */
#include "ref/model/config_json/config_json.h"
#include "ref/routers/router.h"

const struct config_reading deepseek_v2_defaults = {    /* DeepseekV2Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .eps = 1e-6, .init_std = 0.02,
           .latent = { .q = 1536, .kv = 512, .v = 128 }, .mixture = { .E = 64, .router = { .scale = 1 } } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .nope = 128, .turned = 64, .shared_experts = 2,
    .rope_interleave = true,
};

const struct config_reading deepseek_v3_defaults = {    /* DeepseekV3Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .eps = 1e-6, .init_std = 0.02,
           .alike = FAMILY_DEEPSEEK_V3, .latent = { .q = 1536, .kv = 512, .v = 128 },
           .mixture = { .E = 256,
                        .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5, .biased = true,
                                    .groups = 8, .kept = 4, .bias_update = BIAS_BY_SIGN } } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .nope = 128, .turned = 64, .shared_experts = 1, .first_dense = 3,
    .rope_interleave = true, .scoring_func = "sigmoid", .topk_method = "noaux_tc",
};

/* head_dim and qk_head_dim are sums of others. */
#define DEEPSEEK_KEYS                                                                                                  \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.dense.F),                                                               \
    CONFIG_TO("moe_intermediate_size", KEY_SIZE, c.F),                                                                 \
    CONFIG_TO("first_k_dense_replace", KEY_COUNT, first_dense),                                                        \
    CONFIG_TO("q_lora_rank", KEY_SIZE_OR_NULL, c.latent.q),                                                            \
    CONFIG_TO("kv_lora_rank", KEY_SIZE_OR_NULL, c.latent.kv),                                                          \
    CONFIG_TO("qk_nope_head_dim", KEY_SIZE_OR_NULL, nope),                                                             \
    CONFIG_TO("qk_rope_head_dim", KEY_SIZE_OR_NULL, turned),                                                           \
    CONFIG_TO("v_head_dim", KEY_SIZE_OR_NULL, c.latent.v),                                                             \
    CONFIG_TO("n_routed_experts", KEY_SIZE_OR_NULL, c.mixture.E),                                                      \
    CONFIG_TO("num_experts_per_tok", KEY_SIZE, c.mixture.k),                                                           \
    CONFIG_TO("n_shared_experts", KEY_SIZE_OR_NULL, shared_experts),                                                   \
    ROUTER_RULE_KEYS,                                                                                                  \
    CONFIG_TO("orrery_router", KEY_FLAG, another_router),                                                              \
    CONFIG_TO("aux_loss_alpha", KEY_REAL, c.mixture.sequence_coefficient),                                             \
    KEY_ONLY_AS("seq_aux", "true"),                                                                                    \
    KEY_ONLY_AS("moe_layer_freq", "1"),                                                                                \
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),                                                             \
    KEY_ONLY_AS("pretraining_tp", "1"),                                                                                \
    KEY_ONLY_AS("hidden_act", "\"silu\""),                                                                             \
    KEY_LEFT("head_dim"), KEY_LEFT("qk_head_dim"),                                                                     \
    KEY_LEFT("ep_size"), KEY_LEFT("output_router_logits"),

const struct config_key deepseek_v2_keys[] = {
    DEEPSEEK_KEYS
    KEY_ONLY_AS("mlp_bias", "false"),
    { .name = NULL },
};

/* The layers that predict further tokens are not in the class of transformers either: its files may have them. */
const struct config_key deepseek_v3_keys[] = {
    DEEPSEEK_KEYS
    CONFIG_TO("rope_interleave", KEY_FLAG, rope_interleave),
    KEY_LEFT("num_nextn_predict_layers"), KEY_LEFT("num_mtp_layers"),
    { .name = NULL },
};

/* ---- routers ----------------------------------------------------------------------------------------------------- */

/* What the router of the class in transformers does, whatever the keys that it does not read say. */
static bool is_of_class(const struct router_rule *rule, bool v3)
{
    const struct router_rule own = {
        .scores = v3 ? SCORES_SIGMOID : SCORES_SOFTMAX, .normalized = v3 && rule->normalized, .scale = rule->scale,
        .biased = v3, .groups = rule->groups, .kept = rule->kept, .sums_two = v3 && rule->groups > 1,
        .bias_update = BIAS_BY_SIGN, .bias_speed = v3 ? rule->bias_speed : 0,
    };
    return router_same(rule, &own);
}

static enum error_code check_router(const struct config_reading *reading, const char *path, struct error *err)
{
    const struct mixture_config *m = &reading->c.mixture;
    const bool v3 = reading->c.alike == FAMILY_DEEPSEEK_V3;
    if (reading->another_router || (is_of_class(&m->router, v3) && m->zero == 0)) return OK;
    return fail(err, ERR_FORMAT, "%s: a deepseek_%s has %s; other routers need orrery_router true: the class of "
                "transformers does not have them", path, v3 ? "v3" : "v2",
                v3 ? "topk_method \"noaux_tc\" and scoring_func \"sigmoid\""
                   : "topk_method \"greedy\" or \"group_limited_greedy\", scoring_func \"softmax\" and norm_topk_prob "
                     "false");
}

static bool groups_to_json(const struct router_rule *rule, cJSON *root)
{
    return cJSON_AddNumberToObject(root, "n_group", rule->groups > 1 ? (double)rule->groups : 1) &&
           cJSON_AddNumberToObject(root, "topk_group", rule->groups > 1 ? (double)rule->kept : 1);
}

/* router_bias_speed is Orrery's: the class of transformers does not move biases. */
static bool class_router_to_json(const struct router_rule *rule, bool v3, cJSON *root)
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

/* ---- a whole file ------------------------------------------------------------------------------------------------ */

enum error_code deepseek_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    enum error_code e = mixture_finish(reading, path, err);
    if (!e) e = check_router(reading, path, err);
    if (e) return e;
    if (c->latent.kv == 0 || reading->nope == 0 || reading->turned == 0 || c->latent.v == 0)
        return fail(err, ERR_FORMAT, "%s: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim must be "
                    "numbers", path);
    if (c->K != 0 && c->K != c->H)
        return fail(err, ERR_FORMAT, "%s: num_key_value_heads is %lld; with latent attention it must be "
                    "num_attention_heads, %lld", path, (long long)c->K, (long long)c->H);
    if (reading->first_dense > 0 && c->L > LAYER_SET_MOST)
        return fail(err, ERR_FORMAT, "%s: num_hidden_layers is %lld; with dense layers it can be at most %d", path,
                    (long long)c->L, LAYER_SET_MOST);
    for (int64_t l = 0; l < reading->first_dense && l < c->L; l++) layer_set_add(&c->dense.at, l);
    if (reading->first_dense == 0) c->dense.F = 0;
    c->K = c->H, c->A = reading->nope + reading->turned;
    if (reading->attention_bias) c->biases |= BIASES_LATENT_ATTENTION;
    c->mixture.shared = reading->shared_experts * c->F;
    c->padding = reading->pad_token == NO_TOKEN ? 0 : reading->pad_token == -1 ? c->V : reading->pad_token + 1;
    e = rotary_from_json(reading, root, path, err);
    c->rotary.turned = reading->turned, c->rotary.neighbours = reading->rope_interleave;
    return e;
}

bool deepseek_to_json(const struct model_config *config, cJSON *root)
{
    const struct mixture_config *m = &config->mixture;
    const bool v3 = config->alike == FAMILY_DEEPSEEK_V3;
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
              (is_of_class(&m->router, v3) && m->zero == 0 ? class_router_to_json(&m->router, v3, root)
                                                           : another_router_to_json(m, root)) &&
              (config->latent.q ? cJSON_AddNumberToObject(root, "q_lora_rank", (double)config->latent.q) != NULL
                           : cJSON_AddNullToObject(root, "q_lora_rank") != NULL);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = config_add_real(root, "attention_dropout", config->dropout_attention) && ok;
    if (config->biases & HAS_BIAS(ROLE_LATENT)) ok = cJSON_AddTrueToObject(root, "attention_bias") && ok;
    if (v3)
        ok = cJSON_AddBoolToObject(root, "rope_interleave", config->rotary.neighbours) &&
             cJSON_AddNumberToObject(root, "num_nextn_predict_layers", 0) && ok;
    if (m->sequence_coefficient > 0)
        ok = cJSON_AddNumberToObject(root, "aux_loss_alpha", m->sequence_coefficient) &&
             cJSON_AddTrueToObject(root, "seq_aux") && ok;
    return rotary_to_json(config, root) && cJSON_AddBoolToObject(root, "tie_word_embeddings", config->tied) && ok;
}
