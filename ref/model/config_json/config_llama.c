/* config_llama.c -- the config.json of a Llama, of a Mistral, which is a Llama with windows of attention, of a Phi-3,
 * which is one with fused matrices in files, parts of heads that are turned, and LongRoPE, of a Mixtral, which is a
 * Mistral with a mixture, of a Qwen2, which is a Llama with biases of queries, keys and values, of a Qwen3, which has
 * norms of queries and keys instead, of a Qwen3-MoE, which is a Qwen3 with a mixture, and of a ParScale, which is a
 * Qwen2 with parallel streams.
 */
#include "ref/model/config_json/config_json.h"
#include <math.h>

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

const struct config_reading olmo2_defaults = {          /* Olmo2Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .head_norms = true,
           .normed_together = true, .norms_at = NORMS_AFTER, .eps = 1e-5, .init_std = 0.02 },
    .rope_theta = 10000, .pad_token = 1,
};

const struct config_reading phi3_defaults = {           /* Phi3Config's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .alike = FAMILY_PHI3, .eps = 1e-5,
           .init_std = 0.02 },
    .rope_theta = 10000, .pad_token = 32000, .window_rule = WINDOWS_ALL, .original_positions = 4096,
    .parts_turn = true, .only_long = true,
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

const struct config_reading qwen3_moe_defaults = {      /* Qwen3MoeConfig's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .head_norms = true, .eps = 1e-6,
           .init_std = 0.02, .K = 4,
           .mixture = { .E = 128, .k = 8, .router = { .scale = 1 }, .balance_coefficient = 0.001 } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .sparse_step = 1,
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

#define SHAPE_KEYS                                                                                                     \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    KEY_ONLY_AS("hidden_act", "\"silu\"", "\"swish\""),   /* two names of one function */                          \
    CONFIG_TO("partial_rotary_factor", KEY_REAL_OR_NULL, rope_part),                                                   \
    CONFIG_TO("layer_types", KEY_LIST, layer_types)

#define DECODER_KEYS SHAPE_KEYS, CONFIG_TO("intermediate_size", KEY_SIZE, c.F)

#define LLAMA_KEYS                                                                                                     \
    DECODER_KEYS,                                                                                                      \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    KEY_ONLY_AS("pretraining_tp", "1")

const struct config_key mistral_keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    { .name = NULL },
};

const struct config_key olmo2_keys[] = {
    DECODER_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    { .name = NULL },
};

/* Released files also have how to generate, code of transformers' own, and a dropout that no version applies. */
const struct config_key phi3_keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("original_max_position_embeddings", KEY_SIZE_OR_NULL, original_positions),
    CONFIG_TO("resid_pdrop", KEY_REAL, c.dropout_residual),
    KEY_ONLY_AS("embd_pdrop", "0"), KEY_ONLY_AS("attention_bias", "false"), KEY_ONLY_AS("mlp_bias", "false"),
    KEY_ONLY_AS("lm_head_bias", "false"), KEY_ONLY_AS("full_attn_mod", "1"), KEY_ONLY_AS("interpolate_factor", "1"),
    KEY_LEFT("auto_map"),
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
    KEY_ONLY_AS("use_mrope", "false"),                                                                                 \
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
    LLAMA_KEYS, ROUTER_KEYS,
    KEY_ONLY_AS("attention_bias", "false"),
    KEY_ONLY_AS("mlp_bias", "false"),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_TO("n_shared_experts", KEY_SIZE_OR_NULL, shared_experts),
    CONFIG_TO("shared_expert_intermediate_size", KEY_SIZE_OR_NULL, c.mixture.shared),
    CONFIG_TO("shared_expert_gate", KEY_FLAG, c.mixture.shared_gate),
    { .name = NULL },
};

/* transformers 5 writes num_local_experts, versions before num_experts.  A window is described even where it is not
 * used. */
const struct config_key qwen3_moe_keys[] = {
    SHAPE_KEYS, ROUTER_KEYS,
    KEY_ONLY_AS("use_sliding_window", "false"),
    KEY_LEFT("sliding_window"), KEY_LEFT("max_window_layers"),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("moe_intermediate_size", KEY_SIZE, c.F),
    CONFIG_TO("intermediate_size", KEY_SIZE, c.dense.F),
    CONFIG_TO("num_experts", KEY_SIZE_OR_NULL, experts),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_TO("decoder_sparse_step", KEY_SIZE_OR_NULL, sparse_step),
    CONFIG_TO("mlp_only_layers", KEY_LIST, dense_layers),
    { .name = NULL },
};

enum error_code llama_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    enum error_code e = mixture_finish(reading, path, err);
    if (e) return e;
    if (reading->shared_experts && c->mixture.shared && c->mixture.shared != reading->shared_experts * c->F)
        return fail(err, ERR_FORMAT, "%s: n_shared_experts is %lld, and shared_expert_intermediate_size is not so many "
                    "times intermediate_size", path, (long long)reading->shared_experts);
    if (reading->shared_experts) c->mixture.shared = reading->shared_experts * c->F;
    if (c->K == 0) c->K = c->H;
    if (reading->attention_bias) c->biases |= BIASES_ATTENTION;
    if (reading->mlp_bias) c->biases |= HAS_BIAS(ROLE_UP) | HAS_BIAS(ROLE_DOWN);
    if (STREAMS(c) == 1) c->streams = (struct streams_config){ 0 };        /* one stream is a Qwen2 */
    if (reading->head_dim == 0 && c->D % c->H != 0)
        return fail(err, ERR_FORMAT, "%s: width D=%lld is not a multiple of H=%lld heads, and there is no head_dim",
                    path, (long long)c->D, (long long)c->H);
    c->A = reading->head_dim ? reading->head_dim : c->D / c->H;
    c->padding = reading->pad_token == NO_TOKEN ? 0 : reading->pad_token == -1 ? c->V : reading->pad_token + 1;
    if (!reading->output_router_logits) c->mixture.balance_coefficient = 0;
    e = windows_from_json(reading, path, err);
    return e ? e : rotary_from_json(reading, root, path, err);
}

/* Layer l has experts if l + 1 is a multiple of decoder_sparse_step, and l is not in mlp_only_layers. */
static enum error_code find_dense_layers(struct config_reading *reading, const char *path, struct error *err)
{
    struct dense_layers *d = &reading->c.dense;
    const cJSON *layer;
    if (reading->sparse_step == 0)
        return fail(err, ERR_FORMAT, "%s: decoder_sparse_step is null; it must be at least 1", path);
    for (int64_t l = 0; l < reading->c.L; l++)
        if ((l + 1) % reading->sparse_step != 0) layer_set_add(&d->at, l);
    cJSON_ArrayForEach(layer, reading->dense_layers) {
        const double l = cJSON_IsNumber(layer) ? layer->valuedouble : -1;
        if (!(l >= 0 && l < (double)reading->c.L && l == floor(l)))
            return fail(err, ERR_FORMAT, "%s: mlp_only_layers has something else than numbers of layers, from 0 to "
                        "%lld", path, (long long)reading->c.L - 1);
        layer_set_add(&d->at, (int64_t)l);
    }
    if (layer_set_count(&d->at, reading->c.L) > 0 && reading->c.L > LAYER_SET_MOST)
        return fail(err, ERR_FORMAT, "%s: num_hidden_layers is %lld; with dense layers it can be at most %d", path,
                    (long long)reading->c.L, LAYER_SET_MOST);
    if (layer_set_count(&d->at, reading->c.L) == 0) d->F = 0;
    return OK;
}

enum error_code qwen3_moe_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    if (reading->experts && json_has(root, "num_local_experts") && reading->experts != reading->c.mixture.E)
        return fail(err, ERR_FORMAT, "%s: num_experts is %lld, num_local_experts %lld", path,
                    (long long)reading->experts,
                    (long long)reading->c.mixture.E);
    if (reading->experts) reading->c.mixture.E = reading->experts;
    const enum error_code e = find_dense_layers(reading, path, err);
    return e ? e : llama_finish(reading, root, path, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Write pad_token_id even if it is unset: in these families a missing key means a number. */
static bool padding_to_json(const struct model_config *config, cJSON *root)
{
    if (config->padding == 0) return cJSON_AddNullToObject(root, "pad_token_id") != NULL;
    return cJSON_AddNumberToObject(root, "pad_token_id", (double)(config->padding - 1)) != NULL;
}

bool llama_to_json(const struct model_config *config, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "max_position_embeddings", (double)config->S }, { "hidden_size", (double)config->D },
        { "num_attention_heads", (double)config->H },
        { "num_key_value_heads", (double)config->K }, { "num_hidden_layers", (double)config->L },
            { "vocab_size", (double)config->V },
        { "intermediate_size", (double)(config->dense.F ? config->dense.F : config->F) },
        { "rms_norm_eps", config->eps }, { "initializer_range", config->init_std },
        { "attention_dropout", config->dropout_attention },
    };
    const char *act = config->mlp == MLP_GEGLU ? "gelu_pytorch_tanh" : "silu";
    bool ok = cJSON_AddStringToObject(root, "hidden_act", act) != NULL;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    if (config->biases & HAS_BIAS(ROLE_ATTENTION_OUT)) ok = cJSON_AddTrueToObject(root, "attention_bias") && ok;
    if (config->biases & HAS_BIAS(ROLE_UP) && !config->sinks) ok = cJSON_AddTrueToObject(root, "mlp_bias") && ok;
    /* which is another width than D/H */
    const bool has_default = config->head_norms || config->sinks || config->mlp == MLP_GEGLU,
               needs_it = config->mlp == MLP_MIXTURE;    /* transformers 5 makes no dynamic scaling, YaRN or LongRoPE of
                                                          * a Mixtral without it */
    if (heads_width(config) != config->D || has_default || needs_it)
        ok = cJSON_AddNumberToObject(root, "head_dim", (double)config->A) && ok;
    if (STREAMS(config) > 1)
        ok = cJSON_AddNumberToObject(root, "parscale_n", (double)config->streams.P) &&
             cJSON_AddNumberToObject(root, "parscale_n_tokens", (double)config->streams.prefix) &&
             cJSON_AddNumberToObject(root, "parscale_attn_smooth", config->streams.smoothing) && ok;
    ok = windows_to_json(config, root) && rotary_to_json(config, root) && ok;
    if (config->alike == FAMILY_PHI3) ok = cJSON_AddNumberToObject(root, "resid_pdrop", config->dropout_residual) && ok;
    if (config->alike == FAMILY_PHI3 || config->norms_at == NORMS_AFTER) ok = padding_to_json(config, root) && ok;
    ok = (config->mlp != MLP_MIXTURE || mixture_to_json(&config->mixture, root)) && ok;
    return cJSON_AddBoolToObject(root, "tie_word_embeddings", config->tied) && ok;
}

/* norm_topk_prob is always there, because its default is not a Mixtral's; and what older versions call the experts. */
bool qwen3_moe_to_json(const struct model_config *config, cJSON *root)
{
    cJSON *list = NULL;
    bool ok = llama_to_json(config, root)
        && cJSON_AddNumberToObject(root, "moe_intermediate_size", (double)config->F) &&
              cJSON_AddNumberToObject(root, "num_experts", (double)config->mixture.E) &&
              (json_has(root, "norm_topk_prob") ||
               cJSON_AddBoolToObject(root, "norm_topk_prob", config->mixture.router.normalized)) &&
              cJSON_AddNumberToObject(root, "decoder_sparse_step", 1) &&
              (list = cJSON_AddArrayToObject(root, "mlp_only_layers")) != NULL;
    for (int64_t l = 0; l < config->L && ok; l++)
        if (layer_set_has(&config->dense.at, l)) ok = cJSON_AddItemToArray(list, cJSON_CreateNumber((double)l));
    return ok;
}
