/* config_gpt_oss.c -- the config.json of a GPT-OSS: a Llama's sizes, windows in every second layer and YaRN if a file
 * says nothing else, biases everywhere, and a mixture of clamped swiglus.
 */
#include "ref/model/config_json/config_json.h"
#include <string.h>

/* 0.1 ln 32 + 1: what YaRN multiplies cosines and sines by, for the usual factor of 32. */
#define ENLARGED_OF_32 1.3465735902799727

const struct config_reading gpt_oss_defaults = {        /* GptOssConfig's */
    .c = { .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .biases = BIASES_GPT_OSS,
           .sinks = true, .eps = 1e-5, .init_std = 0.02, .K = 8,
           .rotary = { .scaling = SCALING_YARN, .factor = 32, .low_frequency = 1, .high_frequency = 32,
                       .original_positions = 4096, .enlarged = ENLARGED_OF_32, .between_pairs = true },
           .mixture = { .E = 128, .k = 4, .router = { .normalized = true, .scale = 1 },
                        .clamped = { .alpha = 1.702, .limit = 7 }, .balance_coefficient = 0.001 } },
    .attention_bias = true, .head_dim = 64, .rope_theta = 150000, .pad_token = NO_TOKEN,
    .window_rule = WINDOWS_BUT_EVERY, .window_pattern = 2, .sliding_window = 128,
};

/* What the released files have besides, and no version reads: the numbers of a token's experts and of the original
 * context under other names. */
const struct config_key gpt_oss_keys[] = {
    ROTARY_DECODER_KEYS, ROUTER_KEYS,
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    KEY_ONLY_AS("hidden_act", "\"silu\""),
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("layer_types", KEY_LIST, layer_types),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_TO("swiglu_alpha", KEY_REAL, c.mixture.clamped.alpha),
    CONFIG_TO("swiglu_limit", KEY_REAL, c.mixture.clamped.limit),
    KEY_LEFT("experts_per_token"), KEY_LEFT("initial_context_length"),
    { .name = NULL },
};

enum error_code gpt_oss_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    const struct clamped c = reading->c.mixture.clamped;
    if (!(c.limit > 0)) return fail(err, ERR_FORMAT, "%s: swiglu_limit is %g; it must be above 0", path, c.limit);
    return llama_finish(reading, root, path, err);
}

bool gpt_oss_to_json(const struct model_config *config, cJSON *root)
{
    const bool biased = model_has_bias(config, ROLE_ATTENTION_OUT);
    return llama_to_json(config, root) && config_add_real(root, "swiglu_alpha", config->mixture.clamped.alpha) &&
           config_add_real(root, "swiglu_limit", config->mixture.clamped.limit) &&
           (biased || cJSON_AddFalseToObject(root, "attention_bias"));
}
