/* config_gemma.c -- the config.json of a Gemma: a Llama's sizes and rotary positions, with a padding token and tied
 * matrices if nothing else is said.
 *
 * The feed-forward is a geglu in the tanh form.  Files say so in hidden_act, older ones in hidden_activation; the first
 * files have hidden_act "gelu", which means the tanh form as well.
 */
#include "ref/model/config_json.h"

#define GEMMA_PARTS                                                                                                    \
    .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_GEGLU, .norms_from_one = true,                         \
    .scaled_embedding = true, .tied = true, .eps = 1e-6, .init_std = 0.02

const struct config_reading gemma_defaults = {          /* GemmaConfig's */
    .c = { GEMMA_PARTS, .K = 16 }, .head_dim = 256, .rope_theta = 10000, .pad_token = 0,
};

const struct config_key gemma_keys[] = {
    CONFIG_TO("max_position_embeddings", KEY_SIZE, c.S),
    CONFIG_TO("hidden_size", KEY_SIZE, c.D),
    CONFIG_TO("num_attention_heads", KEY_SIZE, c.H),
    CONFIG_TO("num_key_value_heads", KEY_SIZE_OR_NULL, c.K),
    CONFIG_TO("num_hidden_layers", KEY_SIZE, c.L),
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),
    CONFIG_TO("rms_norm_eps", KEY_REAL, c.eps),
    CONFIG_TO("attention_dropout", KEY_REAL, c.dropout_attention),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("pad_token_id", KEY_TOKEN, pad_token),
    CONFIG_TO("rope_theta", KEY_REAL, rope_theta),
    CONFIG_TO("rope_scaling", KEY_OBJECT, rope_scaling),
    CONFIG_TO("rope_parameters", KEY_OBJECT, rope_parameters),
    KEY_ONLY_AS("hidden_act", "\"gelu_pytorch_tanh\"", "\"gelu\""),
    KEY_ONLY_AS("hidden_activation", "\"gelu_pytorch_tanh\"", "null"),
    KEY_ONLY_AS("use_bidirectional_attention", "false", "null"),
    { .name = NULL },
};

/* A missing pad_token_id would be read as token 0. */
static bool padding_to_json(const struct model_config *c, cJSON *root)
{
    return c->padding ? cJSON_AddNumberToObject(root, "pad_token_id", (double)(c->padding - 1)) != NULL
                      : cJSON_AddNullToObject(root, "pad_token_id") != NULL;
}

bool gemma_to_json(const struct model_config *c, cJSON *root)
{
    return llama_to_json(c, root) && padding_to_json(c, root);
}
