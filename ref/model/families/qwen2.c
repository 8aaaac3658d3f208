/* qwen2.c -- Qwen2: a Llama with biases of queries, keys and values; its later layers may have windows.
 *
 * Source  A. Yang et al., "Qwen2 technical report", arXiv:2407.10671
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/families.h"
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Qwen2Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .biases = HAS_BIAS(ROLE_QKV), .eps = 1e-6, .K = 32 },
    .rope_theta = 10000, .pad_token = NO_TOKEN, QWEN_WINDOWS,
};

static const struct config_key keys[] = {
    QWEN2_KEYS,
    { .name = NULL },
};

const struct family family_qwen2 = {
    .name = "qwen2", .title = "a Qwen2", .architecture = "Qwen2ForCausalLM", .without_head = "Qwen2Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_WINDOWS, HAS_SOME_WINDOWS },
    .program = { { llama_embedding, llama_block, llama_loss } }, .streamed = &family_parscale,
};
