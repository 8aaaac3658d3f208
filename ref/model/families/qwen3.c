/* qwen3.c -- Qwen3: a Llama whose queries and keys pass an rmsnorm of each head before their rotary positions.
 *
 * Source  A. Yang et al., "Qwen3 technical report", arXiv:2505.09388
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Qwen3Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .head_norms = true, .eps = 1e-6, .K = 32 },
    .head_dim = 128, .rope_theta = 10000, .pad_token = NO_TOKEN, QWEN_WINDOWS,
};

static const struct config_key keys[] = {
    QWEN2_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    { .name = NULL },
};

const struct family family_qwen3 = {
    .name = "qwen3", .title = "a Qwen3", .architecture = "Qwen3ForCausalLM", .without_head = "Qwen3Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_WINDOWS, HAS_SOME_WINDOWS },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
