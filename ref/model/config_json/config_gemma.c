/* config_gemma.c -- the config.json of a Gemma, a Gemma 2 and the text model of a Gemma 3: a Llama's sizes and rotary
 * positions, with a padding token and tied matrices if nothing else is said.  The two later ones have windows in all
 * layers but each second or sixth, soft caps, and scores divided by the root of a number of their own.
 *
 * The feed-forward is a geglu in the tanh form.  Files say so in hidden_act, older ones in hidden_activation; the first
 * files have hidden_act "gelu", which means the tanh form as well.
 */
#include "ref/model/config_json/config_json.h"

#define GEMMA_PARTS                                                                                                    \
    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_GEGLU, .norms_from_one = true,                         \
    .scaled_embedding = true, .tied = true, .eps = 1e-6, .init_std = 0.02

const struct config_reading gemma_defaults = {          /* GemmaConfig's */
    .c = { GEMMA_PARTS, .K = 16 }, .head_dim = 256, .rope_theta = 10000, .pad_token = 0,
};

const struct config_reading gemma2_defaults = {         /* Gemma2Config's */
    .c = { GEMMA_PARTS, .K = 4, .norms_at = NORMS_AROUND, .score_width = 256, .score_cap = 50, .logit_cap = 30 },
    .head_dim = 256, .rope_theta = 10000, .pad_token = 0, .window_rule = WINDOWS_BUT_EVERY, .sliding_window = 4096,
    .window_pattern = 2,
};

const struct config_reading gemma3_defaults = {         /* Gemma3TextConfig's */
    .c = { GEMMA_PARTS, .K = 4, .head_norms = true, .norms_at = NORMS_AROUND, .score_width = 256 },
    .head_dim = 256, .rope_theta = 1000000, .local_theta = 10000, .pad_token = 0, .window_rule = WINDOWS_BUT_EVERY,
    .sliding_window = 4096, .window_pattern = 6,
};

#define GEMMA_KEYS                                                                                                     \
    ROTARY_DECODER_KEYS,                                                                                               \
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),                                                                     \
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),                                                                 \
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),                                                             \
    KEY_ONLY_AS("hidden_act", "\"gelu_pytorch_tanh\"", "\"gelu\""),                                                    \
    KEY_ONLY_AS("hidden_activation", "\"gelu_pytorch_tanh\"", "null"),                                                 \
    KEY_ONLY_AS("use_bidirectional_attention", "false", "null")

const struct config_key gemma_keys[] = {
    GEMMA_KEYS,
    { .name = NULL },
};

#define LATER_KEYS                                                                                                     \
    GEMMA_KEYS,                                                                                                        \
    CONFIG_TO("query_pre_attn_scalar", KEY_REAL, c.score_width),                                                       \
    CONFIG_TO("final_logit_softcapping", KEY_REAL_OR_NONE, c.logit_cap),                                               \
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),                                                     \
    CONFIG_TO("layer_types", KEY_LIST, layer_types)

/* The first files also have the window by an earlier name. */
const struct config_key gemma2_keys[] = {
    LATER_KEYS,
    CONFIG_TO("attn_logit_softcapping", KEY_REAL_OR_NONE, c.score_cap),
    KEY_LEFT("sliding_window_size"),
    { .name = NULL },
};

/* transformers does not cap the scores of a Gemma 3, whatever its file says. */
const struct config_key gemma3_keys[] = {
    LATER_KEYS,
    KEY_ONLY_AS("attn_logit_softcapping", "null"),
    CONFIG_TO("sliding_window_pattern", KEY_SIZE_OR_NULL, window_pattern),
    CONFIG_TO("_sliding_window_pattern", KEY_SIZE_OR_NULL, window_pattern),
    CONFIG_TO("rope_local_base_freq", KEY_REAL, local_theta),
    { .name = NULL },
};

enum error_code gemma2_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    const struct { const char *key; double value; } above[] = {
        { "query_pre_attn_scalar", reading->c.score_width }, { "attn_logit_softcapping", reading->c.score_cap },
        { "final_logit_softcapping", reading->c.logit_cap }, { "rope_local_base_freq", reading->local_theta },
    };
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(root, above[i].key);
        if (value && !cJSON_IsNull(value) && !(above[i].value > 0))
            return fail(err, ERR_FORMAT, "%s: %s is %g; it must be above 0", path, above[i].key, above[i].value);
    }
    if (reading->sliding_window == 0)
        return fail(err, ERR_FORMAT, "%s: sliding_window is null; a model of this model_type has a number, also if "
                    "layer_types has no \"sliding_attention\"", path);
    if (reading->window_pattern == 0)
        return fail(err, ERR_FORMAT, "%s: sliding_window_pattern is null; it must be a number, such as 6", path);
    return llama_finish(reading, root, path, err);
}

/* A missing pad_token_id would be read as token 0. */
static bool padding_to_json(const struct model_config *config, cJSON *root)
{
    return config->padding ? cJSON_AddNumberToObject(root, "pad_token_id", (double)(config->padding - 1)) != NULL
                      : cJSON_AddNullToObject(root, "pad_token_id") != NULL;
}

bool gemma_to_json(const struct model_config *config, cJSON *root)
{
    return llama_to_json(config, root) && padding_to_json(config, root);
}

/* Older versions know all but the list: of a Gemma 2 every other layer has a window, of a Gemma 3 all but each so
 * many. */
bool gemma2_to_json(const struct model_config *config, cJSON *root)
{
    const struct { const char *key; double value; } cap[] = {
        { "attn_logit_softcapping", config->score_cap }, { "final_logit_softcapping", config->logit_cap },
    };
    bool ok = gemma_to_json(config, root) &&
              cJSON_AddNumberToObject(root, "query_pre_attn_scalar",
                                      config->score_width > 0 ? config->score_width : (double)config->A) != NULL;
    for (int i = 0; i < 2; i++)
        ok = (cap[i].value > 0 ? config_add_real(root, cap[i].key, cap[i].value)
                               : cJSON_AddNullToObject(root, cap[i].key) != NULL) && ok;
    return (config->local_theta == 0 || config_add_real(root, "rope_local_base_freq", config->local_theta)) && ok;
}
