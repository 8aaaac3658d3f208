/* mixtral.c -- Mixtral: a Llama in whose feed-forward every token goes to k of E experts; also with shared experts,
 * which every token goes through, with and without a gate.
 *
 * Source  A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088; shared experts: ref/model/shared.c
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  olmoe.c,
 *         qwen3_moe.c and scmoe.c use tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* MixtralConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .eps = 1e-5, .K = 8,
           .mixture = { .E = 8, .k = 2, .router = { .normalized = true, .scale = 1 },
                        .balance_coefficient = 0.001 } },
    .rope_theta = 1e6, .pad_token = NO_TOKEN, .window_rule = WINDOWS_ALL,
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

static const struct naming naming = {
    DECODER_NAMES,
    .of_block = {
        LLAMA_NAMES,
        [ROUTER_W] = { .whole = "block_sparse_moe.gate.weight" },
        [SHARED_UP_W] = { "block_sparse_moe.shared_expert.w13.weight",
                          { "block_sparse_moe.shared_expert.w1.weight", "block_sparse_moe.shared_expert.w3.weight" } },
        [SHARED_DOWN_W] = { .whole = "block_sparse_moe.shared_expert.w2.weight" },
        [SHARED_GATE_W] = { .whole = "block_sparse_moe.shared_expert_gate.weight" },
    },
    .expert = "block_sparse_moe.experts.%d.",
    .expert_up = { "w13.weight", { "w1.weight", "w3.weight" } }, .expert_down = { .whole = "w2.weight" },
};

#define TO_THE_FEED_FORWARD \
    NODES_QKV, NODES_HEAD_NORMS, NODES_ATTENTION, NODES_JOIN_ATTENTION("attn.out"), NODE_SECOND_NORM

const struct node mixtral_block[] = { TO_THE_FEED_FORWARD, NODES_MIXTURE("mlp.out"), NODES_JOIN_FEED("mlp.out") },
    mixtral_shared_block[] = { TO_THE_FEED_FORWARD, NODES_SHARED_MIXTURE, NODES_JOIN_FEED("mlp.out") },
    mixtral_dense_block[] = { TO_THE_FEED_FORWARD, NODES_DENSE_FEED, NODES_JOIN_FEED("mlp.out") };

const struct family family_mixtral = {
    .name = "mixtral", .title = "a Mixtral", .architecture = "MixtralForCausalLM", .without_head = "MixtralModel",
    .defaults = &defaults, .keys = mixtral_keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .may = { HAS_FEWER_KEYS, HAS_WINDOWS, HAS_SHARED_EXPERTS, HAS_GATED_EXPERTS },
    .program = { { llama_embedding, mixtral_shared_block, llama_loss, .with = HAS_SHARED_EXPERTS },
                 { llama_embedding, mixtral_block, llama_loss } },
};
