/* qwen2_moe.c -- Qwen2-MoE: a Qwen2 whose layers have experts beside a shared one, which has a gate; some layers may
 * have a dense feed-forward instead.
 *
 * Source  A. Yang et al., "Qwen2 technical report", arXiv:2407.10671, as transformers has it
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Qwen2MoeConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-6, .K = 16,
           .mixture = { .E = 60, .k = 4, .router = { .scale = 1 }, .balance_coefficient = 0.001, .shared = 5632,
                        .shared_gate = true } },
    .rope_theta = 10000, .pad_token = NO_TOKEN, .sparse_step = 1, .qkv_bias = true,
};

/* A window is described even where it is not used. */
static const struct config_key keys[] = {
    SHAPE_KEYS, ROUTER_KEYS, SPARSE_KEYS,
    CONFIG_BOTH("qkv_bias", KEY_FLAG, qkv_bias),
    CONFIG_TO("shared_expert_intermediate_size", KEY_SIZE_OR_NULL, c.mixture.shared),
    CONFIG_TO("shared_expert_gate", KEY_FLAG, c.mixture.shared_gate),
    KEY_ONLY_AS("use_sliding_window", "false"),
    KEY_LEFT("sliding_window"), KEY_LEFT("max_window_layers"),
    { .name = NULL },
};

static const struct naming naming = {
    DECODER_NAMES, EXPERT_NAMES,
    .of_block = {
        LLAMA_NAMES,
        [ROUTER_W] = { .whole = "mlp.gate.weight" },
        [SHARED_UP_W] = { "mlp.shared_expert.gate_up_proj.weight",
                          { "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight" } },
        [SHARED_DOWN_W] = { .whole = "mlp.shared_expert.down_proj.weight" },
        [SHARED_GATE_W] = { .whole = "mlp.shared_expert_gate.weight" },
    },
};

const struct family family_qwen2_moe = {
    .name = "qwen2_moe", .title = "a Qwen2-MoE", .architecture = "Qwen2MoeForCausalLM",
    .without_head = "Qwen2MoeModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .may = { HAS_FEWER_KEYS, HAS_QKV_BIASES, HAS_DENSE_LAYERS, HAS_LATER_DENSE },
    .program = { { llama_embedding, mixtral_shared_block, llama_loss, mixtral_dense_block } },
};
