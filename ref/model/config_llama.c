/* config_llama.c -- the config.json of a Llama, of a Mistral, which is a Llama with windows of attention, of a Mixtral,
 * which is a Mistral with a mixture, of a Qwen2, which is a Llama with biases of queries, keys and values, of a Qwen3,
 * which has norms of queries and keys instead, and of a ParScale, which is a Qwen2 with parallel streams.
 *
 * As in transformers, the load-balancing loss is added to a Mixtral's loss only if output_router_logits is true.
 * transformers has a z loss only for other mixtures; its coefficient has the same key here: router_z_loss_coef.
 * Other rules of a router have DeepSeek's keys: scoring_func, topk_method, n_group, topk_group, routed_scaling_factor,
 * aux_loss_alpha, n_shared_experts; experts without computation have LongCat's, zero_expert_num and zero_expert_type;
 * the width of shared experts has Qwen's, shared_expert_intermediate_size.  shared_expert_gate, router_bias_*,
 * router_active_experts and expert_* are our own: no released config.json has them, nor the type "null" and the scores
 * "near".  Uni-MoE's are mlp_dynamic_top_p, l_aux_weight and, for how near logits are, router_jitter_noise.
 */
#include "ref/model/config_json.h"
#include "ref/io/output.h"
#include "ref/routers/router.h"
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const struct config_reading llama_defaults = {          /* LlamaConfig's own */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .eps = 1e-6, .init_std = 0.02 },
    .rope_theta = 10000, .pad_token = NO_TOKEN,
};

const struct config_reading mistral_defaults = {        /* MistralConfig's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .alike = FAMILY_MISTRAL, .eps = 1e-6,
           .init_std = 0.02, .K = 8 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .window_rule = WINDOWS_ALL, .sliding_window = 4096,
};

const struct config_reading mixtral_defaults = {        /* MixtralConfig's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .eps = 1e-5, .init_std = 0.02, .K = 8,
           .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 },
                       .balance_coefficient = 0.001 } },
    .rope_theta = 1e6, .pad_token = NO_TOKEN, .window_rule = WINDOWS_ALL,
};

#define QWEN_WINDOWS .window_rule = WINDOWS_LATE, .sliding_window = 4096, .max_window_layers = 28

const struct config_reading qwen2_defaults = {          /* Qwen2Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .biases = BIASES_QWEN2, .eps = 1e-6,
           .init_std = 0.02, .K = 32 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, QWEN_WINDOWS,
};

const struct config_reading qwen3_defaults = {          /* Qwen3Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .head_norms = true, .eps = 1e-6,
           .init_std = 0.02, .K = 32 },
    .head_dim = 128, .rope_theta = 10000, .pad_token = NO_TOKEN, QWEN_WINDOWS,
};

const struct config_reading parscale_defaults = {       /* those of Qwen2ParScaleConfig, QwenLM/ParScale */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .biases = BIASES_QWEN2, .eps = 1e-6,
           .init_std = 0.02, .K = 32, .streams = { .P = 1, .prefix = 48, .smoothing = 0.01 } },
    .rope_theta = 10000, .pad_token = NO_TOKEN,
};

const struct config_reading scmoe_defaults = {          /* Mixtral's, and LongCat-Flash's for the rest: ours alone */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .eps = 1e-5, .init_std = 0.02,
           .shortcut = true, .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 },
                                          .balance_coefficient = 0.001 } },
    .rope_theta = 1e6, .pad_token = NO_TOKEN,
};

#define DECODER_KEYS                                                                                                   \
    CONFIG_TO("max_position_embeddings", KEY_SIZE, c.S),                                                               \
    CONFIG_TO("hidden_size", KEY_SIZE, c.D),                                                                           \
    CONFIG_TO("num_attention_heads", KEY_SIZE, c.H),                                                                   \
    CONFIG_TO("num_key_value_heads", KEY_SIZE_OR_NULL, c.K),                                                           \
    CONFIG_TO("num_hidden_layers", KEY_SIZE, c.L),                                                                     \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),                                                                     \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    CONFIG_TO("rms_norm_eps", KEY_REAL, c.eps),                                                                        \
    CONFIG_TO("attention_dropout", KEY_REAL, c.dropout_attention),                                                     \
    CONFIG_TO("pad_token_id", KEY_TOKEN, pad_token),                                                                   \
    CONFIG_TO("rope_theta", KEY_REAL, rope_theta),                                                                     \
    CONFIG_TO("rope_scaling", KEY_OBJECT, rope_scaling),                                                               \
    CONFIG_TO("rope_parameters", KEY_OBJECT, rope_parameters),                                                         \
    KEY_ONLY_AS("hidden_act", "\"silu\""),                                                                             \
    KEY_ONLY_AS("partial_rotary_factor", "1", "null"),                                                                 \
    CONFIG_TO("layer_types", KEY_LIST, layer_types)

#define LLAMA_KEYS                                                                                                     \
    DECODER_KEYS,                                                                                                      \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    KEY_ONLY_AS("pretraining_tp", "1")

const struct config_key mistral_keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    { .name = NULL },
};

const struct config_key llama_keys[] = {
    LLAMA_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("mlp_bias", KEY_FLAG, mlp_bias),
    { .name = NULL },
};

#define QWEN2_KEYS                                                                                                     \
    DECODER_KEYS,                                                                                                      \
    CONFIG_TO("use_sliding_window", KEY_FLAG, use_sliding_window),                                                     \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    CONFIG_TO("max_window_layers", KEY_COUNT, max_window_layers)

const struct config_key qwen2_keys[] = {
    QWEN2_KEYS,
    { .name = NULL },
};

const struct config_key qwen3_keys[] = {
    QWEN2_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    { .name = NULL },
};

/* A window is described even where it is not used. */
const struct config_key parscale_keys[] = {
    DECODER_KEYS,
    KEY_ONLY_AS("use_sliding_window", "false"),
    KEY_LEFT("sliding_window"), KEY_LEFT("max_window_layers"),
    CONFIG_TO("parscale_n", KEY_SIZE_OR_NULL, c.streams.P),
    CONFIG_TO("parscale_n_tokens", KEY_SIZE_OR_NULL, c.streams.prefix),
    CONFIG_TO("parscale_attn_smooth", KEY_REAL, c.streams.smoothing),
    { .name = NULL },
};

const struct config_key mixtral_keys[] = {
    LLAMA_KEYS,
    KEY_ONLY_AS("attention_bias", "false"),
    KEY_ONLY_AS("mlp_bias", "false"),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_TO("num_experts_per_tok", KEY_SIZE_OR_NULL, c.mixture.k),
    CONFIG_TO("norm_topk_prob", KEY_FLAG, c.mixture.router.normalized),
    CONFIG_TO("scoring_func", KEY_STRING, scoring_func),
    CONFIG_TO("topk_method", KEY_STRING, topk_method),
    CONFIG_TO("n_group", KEY_SIZE_OR_NULL, c.mixture.router.groups),
    CONFIG_TO("topk_group", KEY_SIZE_OR_NULL, c.mixture.router.kept),
    CONFIG_TO("routed_scaling_factor", KEY_REAL, c.mixture.router.scale),
    CONFIG_TO("router_bias_update", KEY_STRING, bias_update),
    CONFIG_TO("router_bias_speed", KEY_REAL, c.mixture.router.bias_speed),
    CONFIG_TO("router_active_experts", KEY_REAL, c.mixture.router.active),
    CONFIG_TO("zero_expert_num", KEY_SIZE_OR_NULL, c.mixture.zero),
    CONFIG_TO("zero_expert_type", KEY_STRING, zero_type),
    CONFIG_TO("mlp_dynamic_top_p", KEY_REAL, c.mixture.router.top_p),
    CONFIG_TO("router_jitter_noise", KEY_REAL, c.mixture.router.near),
    CONFIG_TO("l_aux_weight", KEY_REAL, layers_balance),
    CONFIG_TO("aux_loss_alpha", KEY_REAL, c.mixture.sequence_coefficient),
    KEY_ONLY_AS("seq_aux", "true"),
    CONFIG_TO("expert_capacity_factor", KEY_REAL, c.mixture.capacity_factor),
    CONFIG_TO("expert_capacity_scope", KEY_STRING, drop_scope),
    CONFIG_TO("expert_drop_order", KEY_STRING, drop_order),
    CONFIG_TO("n_shared_experts", KEY_SIZE_OR_NULL, shared_experts),
    CONFIG_TO("shared_expert_intermediate_size", KEY_SIZE_OR_NULL, c.mixture.shared),
    CONFIG_TO("shared_expert_gate", KEY_FLAG, c.mixture.shared_gate),
    CONFIG_TO("router_aux_loss_coef", KEY_REAL, c.mixture.balance_coefficient),
    CONFIG_TO("router_z_loss_coef", KEY_REAL, c.mixture.z_coefficient),
    CONFIG_TO("output_router_logits", KEY_FLAG, output_router_logits),
    { .name = NULL },
};

/* How experts are chosen: by their scores, in groups, or in groups by biased scores. */
static const char *const methods[] = { "greedy", "group_limited_greedy", "noaux_tc" };
static const char *const zeros[] = { "identity", "null" };
static const char *const orders[] = { "position", "weight" };
static const char *const updates[] = { [BIAS_BY_SIGN] = "sign", [BIAS_BY_SHARE] = "share" };
static const char *const scores[] = { [SCORES_SOFTMAX] = "softmax", [SCORES_SIGMOID] = "sigmoid",
                                     [SCORES_NEAR] = "near" };

static enum error_code find_word(int *place, const char *const *words, int n, const char *word, const char *key,
                                 const char *path, struct error *err)
{
    for (*place = 0; word && *place < n; ++*place)
        if (strcmp(words[*place], word) == 0) return OK;
    if (word == NULL) return *place = 0, OK;
    return fail(err, ERR_FORMAT, "%s: %s is \"%.60s\"; Orrery has only %s and %s%s%s", path, key, printable(word).text,
                words[0], words[1], n > 2 ? " and " : "", n > 2 ? words[2] : "");
}

/* What an expert's capacity is of. */
static enum error_code check_scope(const char *scope, const char *path, struct error *err)
{
    if (scope == NULL || strcmp(scope, "sequence") == 0) return OK;
    return fail(err, ERR_FORMAT, "%s: expert_capacity_scope is \"%.60s\"; Orrery has only sequence: a capacity of a "
                "device or a microbatch is another model in each layout, and one of the batch waits in each layer for "
                "all microbatches", path, printable(scope).text);
}

static enum error_code router_finish(struct config_reading *f, const char *path, struct error *err)
{
    struct router_rule *r = &f->c.mixture.router;
    int score = 0, method = 0, update = 0, order = 0, zero = 0;
    enum error_code e = find_word(&score, scores, 3, f->scoring_func, "scoring_func", path, err);
    if (!e) e = find_word(&method, methods, 3, f->topk_method, "topk_method", path, err);
    if (!e) e = find_word(&update, updates, 2, f->bias_update, "router_bias_update", path, err);
    if (!e) e = find_word(&order, orders, 2, f->drop_order, "expert_drop_order", path, err);
    if (!e) e = check_scope(f->drop_scope, path, err);
    if (!e) e = find_word(&zero, zeros, 2, f->zero_type, "zero_expert_type", path, err);
    f->c.mixture.zero_is_null = f->c.mixture.zero > 0 && zero == 1;
    if (f->layers_balance > 0) f->c.mixture.sequence_coefficient = f->layers_balance / (double)f->c.L;
    r->scores = score, r->bias_update = update, f->c.mixture.drops_by_weight = order == 1;
    r->biased = method == 2;
    if (method == 0 || r->groups <= 1) r->groups = r->kept = 0;
    r->sums_two = r->biased && r->groups > 1;
    return e;
}

enum error_code llama_finish(struct config_reading *f, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &f->c;
    enum error_code e = router_finish(f, path, err);
    if (e) return e;
    if (f->shared_experts && c->mixture.shared && c->mixture.shared != f->shared_experts * c->F)
        return fail(err, ERR_FORMAT, "%s: n_shared_experts is %lld, and shared_expert_intermediate_size is not so many "
                    "times intermediate_size", path, (long long)f->shared_experts);
    if (f->shared_experts) c->mixture.shared = f->shared_experts * c->F;
    if (c->K == 0) c->K = c->H;
    if (f->attention_bias) c->biases |= HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT);
    if (f->mlp_bias) c->biases |= HAS_BIAS(ROLE_UP) | HAS_BIAS(ROLE_DOWN);
    if (STREAMS(c) == 1) c->streams = (struct streams_config){ 0 };        /* one stream is a Qwen2 */
    if (f->head_dim == 0 && c->D % c->H != 0)
        return fail(err, ERR_FORMAT, "%s: width D=%lld is not a multiple of H=%lld heads, and there is no head_dim",
                    path, (long long)c->D, (long long)c->H);
    c->A = f->head_dim ? f->head_dim : c->D / c->H;
    c->padding = f->pad_token == NO_TOKEN ? 0 : f->pad_token == -1 ? c->V : f->pad_token + 1;
    if (!f->output_router_logits) c->mixture.balance_coefficient = 0;
    e = windows_from_json(f, path, err);
    return e ? e : rotary_from_json(f, root, path, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool router_to_json(const struct router_rule *r, cJSON *root)
{
    const struct router_rule mixtral = { .scores = SCORES_SOFTMAX, .normalized = true, .scale = 1 };
    const bool groups = r->groups > 1;
    if (router_same(r, &mixtral)) return true;
    bool ok = cJSON_AddBoolToObject(root, "norm_topk_prob", r->normalized) &&
              cJSON_AddStringToObject(root, "scoring_func", scores[r->scores]) &&
              cJSON_AddStringToObject(root, "topk_method", methods[r->biased ? 2 : groups]) &&
              cJSON_AddNumberToObject(root, "routed_scaling_factor", r->scale);
    if (groups) ok = cJSON_AddNumberToObject(root, "n_group", (double)r->groups) &&
                     cJSON_AddNumberToObject(root, "topk_group", (double)r->kept) && ok;
    if (r->biased) ok = cJSON_AddStringToObject(root, "router_bias_update", updates[r->bias_update]) &&
                        cJSON_AddNumberToObject(root, "router_bias_speed", r->bias_speed) && ok;
    if (r->top_p > 0) ok = cJSON_AddNumberToObject(root, "mlp_dynamic_top_p", r->top_p) && ok;
    if (r->near > 0) ok = cJSON_AddNumberToObject(root, "router_jitter_noise", r->near) && ok;
    if (r->active > 0) ok = cJSON_AddNumberToObject(root, "router_active_experts", r->active) && ok;
    return ok;
}

static bool mixture_to_json(const struct mixture_config *m, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "num_local_experts", (double)m->E }, { "num_experts_per_tok", (double)m->k },
        { "router_aux_loss_coef", m->balance_coefficient },
        { "router_z_loss_coef", m->z_coefficient },
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = router_to_json(&m->router, root) && ok;
    if (m->zero > 0)
        ok = cJSON_AddNumberToObject(root, "zero_expert_num", (double)m->zero) &&
             cJSON_AddStringToObject(root, "zero_expert_type", zeros[m->zero_is_null]) && ok;
    if (m->sequence_coefficient > 0)
        ok = cJSON_AddNumberToObject(root, "aux_loss_alpha", m->sequence_coefficient) &&
             cJSON_AddTrueToObject(root, "seq_aux") && ok;
    if (m->shared > 0)
        ok = cJSON_AddNumberToObject(root, "shared_expert_intermediate_size", (double)m->shared) &&
             cJSON_AddBoolToObject(root, "shared_expert_gate", m->shared_gate) && ok;
    if (m->capacity_factor > 0)
        ok = cJSON_AddNumberToObject(root, "expert_capacity_factor", m->capacity_factor) &&
             cJSON_AddStringToObject(root, "expert_drop_order", orders[m->drops_by_weight]) && ok;
    return cJSON_AddBoolToObject(root, "output_router_logits", m->balance_coefficient > 0) && ok;
}

bool llama_to_json(const struct model_config *c, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "max_position_embeddings", (double)c->S }, { "hidden_size", (double)c->D },
        { "num_attention_heads", (double)c->H },
        { "num_key_value_heads", (double)c->K }, { "num_hidden_layers", (double)c->L }, { "vocab_size", (double)c->V },
        { "intermediate_size", (double)c->F }, { "rms_norm_eps", c->eps }, { "initializer_range", c->init_std },
        { "attention_dropout", c->dropout_attention },
    };
    bool ok = cJSON_AddStringToObject(root, "hidden_act", "silu") != NULL;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    if (c->biases & HAS_BIAS(ROLE_ATTENTION_OUT)) ok = cJSON_AddTrueToObject(root, "attention_bias") && ok;
    if (c->biases & HAS_BIAS(ROLE_UP)) ok = cJSON_AddTrueToObject(root, "mlp_bias") && ok;
    if (heads_width(c) != c->D || c->head_norms) ok = cJSON_AddNumberToObject(root, "head_dim", (double)c->A) && ok;
    if (STREAMS(c) > 1)
        ok = cJSON_AddNumberToObject(root, "parscale_n", (double)c->streams.P) &&
             cJSON_AddNumberToObject(root, "parscale_n_tokens", (double)c->streams.prefix) &&
             cJSON_AddNumberToObject(root, "parscale_attn_smooth", c->streams.smoothing) && ok;
    ok = windows_to_json(c, root) && rotary_to_json(&c->rotary, root) && ok;
    ok = (c->mlp != MLP_MIXTURE || mixture_to_json(&c->mixture, root)) && ok;
    return cJSON_AddBoolToObject(root, "tie_word_embeddings", c->tied) && ok;
}
