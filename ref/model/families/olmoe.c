/* olmoe.c -- OLMoE: a mixture in every layer; queries, and keys, pass an rmsnorm of all heads before their rotary
 * positions.
 *
 * Source  N. Muennighoff et al., "OLMoE: open mixture-of-experts language models", arXiv:2409.02060, as transformers
 *         has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* OlmoeConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .head_norms = true, .normed_together = true, .eps = 1e-5,
           .mixture = { .E = 64, .k = 8, .router = { .scale = 1 }, .balance_coefficient = 0.01 } },
    .rope_theta = 10000, .pad_token = 1,
};

static const struct config_key keys[] = {
    DECODER_KEYS, ROUTER_KEYS,
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_BOTH("num_experts", KEY_SIZE_OR_NULL, experts),
    CONFIG_BOTH("norm_topk_prob", KEY_FLAG, c.mixture.router.normalized),
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token),
    KEY_ONLY_AS("clip_qkv", "null"),
    { .name = NULL },
};

const struct family family_olmoe = {
    .name = "olmoe", .title = "an OLMoE", .architecture = "OlmoeForCausalLM", .without_head = "OlmoeModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &qwen3_moe_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES },
    .program = { { llama_embedding, mixtral_block, llama_loss } },
};
