/* mistral.c -- Mistral: a Llama whose attention has a window in all layers, or in none.
 *
 * Source  A. Q. Jiang et al., "Mistral 7B", arXiv:2310.06825, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* MistralConfig's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .eps = 1e-6, .K = 8 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .window_rule = WINDOWS_ALL, .sliding_window = 4096,
};

static const struct config_key keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    KEY_ONLY_AS("attention_bias", "false"), KEY_ONLY_AS("mlp_bias", "false"),
    { .name = NULL },
};

const struct family family_mistral = {
    .name = "mistral", .title = "a Mistral", .architecture = "MistralForCausalLM", .without_head = "MistralModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_WINDOWS },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
