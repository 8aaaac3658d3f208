/* qwen3_moe.c -- Qwen3-MoE: a Qwen3 in whose feed-forward every token goes to k of E experts; some layers may have a
 * dense feed-forward instead.
 *
 * Source  A. Yang et al., "Qwen3 technical report", arXiv:2505.09388, as transformers has it
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.  olmoe.c uses
 *         tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Qwen3MoeConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .head_norms = true, .eps = 1e-6, .K = 4,
           .mixture = { .E = 128, .k = 8, .router = { .scale = 1 }, .balance_coefficient = 0.001 } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .sparse_step = 1,
};

/* A window is described even where it is not used.  Files of Qwen3-Coder say what else the class has fixed. */
static const struct config_key keys[] = {
    SHAPE_KEYS, ROUTER_KEYS, SPARSE_KEYS,
    KEY_ONLY_AS("use_sliding_window", "false"),
    KEY_LEFT("sliding_window"), KEY_LEFT("max_window_layers"),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    KEY_ONLY_AS("qkv_bias", "false"), KEY_ONLY_AS("use_qk_norm", "true"),
    KEY_ONLY_AS("shared_expert_intermediate_size", "0", "null"),
    { .name = NULL },
};

const struct naming qwen3_moe_naming = {
    DECODER_NAMES, EXPERT_NAMES,
    .of_block = { LLAMA_NAMES, [ROUTER_W] = { .whole = "mlp.gate.weight" } },
};

const struct family family_qwen3_moe = {
    .name = "qwen3_moe", .title = "a Qwen3-MoE", .architecture = "Qwen3MoeForCausalLM",
    .without_head = "Qwen3MoeModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &qwen3_moe_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_DENSE_LAYERS, HAS_LATER_DENSE },
    .program = { { llama_embedding, mixtral_block, llama_loss, mixtral_dense_block } },
};
