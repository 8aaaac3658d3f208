/* naming.c -- the names of parameters: a table for each family that names them alike. */
#include "ref/model/naming.h"

static const struct naming gpt2_naming = {
    .in_files = "transformer.", .block = "h.%d.", .transposed = true, .tokens = "wte", .positions = "wpe",
    .norm = "ln_f",
    .of_block = {
        [LN1_W] = { .whole = "ln_1.weight" },           [LN1_B] = { .whole = "ln_1.bias" },
        [QKV_W] = { .whole = "attn.c_attn.weight" },    [QKV_B] = { .whole = "attn.c_attn.bias" },
        [PROJ_W] = { .whole = "attn.c_proj.weight" },   [PROJ_B] = { .whole = "attn.c_proj.bias" },
        [LN2_W] = { .whole = "ln_2.weight" },           [LN2_B] = { .whole = "ln_2.bias" },
        [UP_W] = { .whole = "mlp.c_fc.weight" },        [UP_B] = { .whole = "mlp.c_fc.bias" },
        [DOWN_W] = { .whole = "mlp.c_proj.weight" },    [DOWN_B] = { .whole = "mlp.c_proj.bias" },
    },
};

/* A Llama's names, which its descendants have, too. */
#define LLAMA_MATRICES                                                                                                 \
    [QKV_W] = { "self_attn.qkv_proj.weight",                                                                           \
                { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" } },                 \
    [QKV_B] = { "self_attn.qkv_proj.bias",                                                                             \
                { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" } },                       \
    [HEAD_NORM_W] = { "self_attn.qk_norm.weight", { "self_attn.q_norm.weight", "self_attn.k_norm.weight" } },          \
    [PROJ_W] = { .whole = "self_attn.o_proj.weight" },                                                                 \
    [PROJ_B] = { .whole = "self_attn.o_proj.bias" },                                                                   \
    [UP_W] = { "mlp.gate_up_proj.weight", { "mlp.gate_proj.weight", "mlp.up_proj.weight" } },                          \
    [UP_B] = { "mlp.gate_up_proj.bias", { "mlp.gate_proj.bias", "mlp.up_proj.bias" } },                                \
    [DOWN_W] = { .whole = "mlp.down_proj.weight" }, [DOWN_B] = { .whole = "mlp.down_proj.bias" }

#define LLAMA_NAMES LLAMA_MATRICES, [LN1_W] = { .whole = "input_layernorm.weight" }, \
                    [LN2_W] = { .whole = "post_attention_layernorm.weight" }

static const struct naming llama_naming = {         /* and Mixtral, Qwen2, Qwen3, ParScale and Gemma */
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_NAMES,
        [PREFIX] = { .whole = "self_attn.prefix_kv.weight" },
        [ROUTER_W] = { .whole = "block_sparse_moe.gate.weight" },
        [SHARED_UP_W] = { "block_sparse_moe.shared_expert.w13.weight",
                          { "block_sparse_moe.shared_expert.w1.weight", "block_sparse_moe.shared_expert.w3.weight" } },
        [SHARED_DOWN_W] = { .whole = "block_sparse_moe.shared_expert.w2.weight" },
        [SHARED_GATE_W] = { .whole = "block_sparse_moe.shared_expert_gate.weight" },
    },
    .expert = "block_sparse_moe.experts.%d.",
    .expert_up = { "w13.weight", { "w1.weight", "w3.weight" } }, .expert_down = { .whole = "w2.weight" },
};

static const struct naming qwen3_moe_naming = {
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_NAMES,
        [ROUTER_W] = { .whole = "mlp.gate.weight" },
    },
    .expert = "mlp.experts.%d.",
    .expert_up = { "gate_up_proj.weight", { "gate_proj.weight", "up_proj.weight" } },
    .expert_down = { .whole = "down_proj.weight" },
};

static const struct naming olmo2_naming = {
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_MATRICES,
        [LN1_W] = { .whole = "post_attention_layernorm.weight" },
        [LN2_W] = { .whole = "post_feedforward_layernorm.weight" },
    },
};

static const struct naming gemma2_naming = {        /* and Gemma 3 */
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_MATRICES,
        [LN1_W] = { .whole = "input_layernorm.weight" },
        [AFTER1_W] = { .whole = "post_attention_layernorm.weight" },
        [LN2_W] = { .whole = "pre_feedforward_layernorm.weight" },
        [AFTER2_W] = { .whole = "post_feedforward_layernorm.weight" },
    },
};

static const struct naming phi3_naming = {          /* a Llama's, fused in files */
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        [LN1_W] = { .whole = "input_layernorm.weight" }, [LN2_W] = { .whole = "post_attention_layernorm.weight" },
        [QKV_W] = { .whole = "self_attn.qkv_proj.weight" }, [PROJ_W] = { .whole = "self_attn.o_proj.weight" },
        [UP_W] = { .whole = "mlp.gate_up_proj.weight" }, [DOWN_W] = { .whole = "mlp.down_proj.weight" },
    },
};

static const struct naming deepseek_naming = {
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_NAMES,
        [Q_LATENT_W] = { .whole = "self_attn.q_a_proj.weight" },
        [Q_LATENT_B] = { .whole = "self_attn.q_a_proj.bias" },
        [Q_NORM_W] = { .whole = "self_attn.q_a_layernorm.weight" },
        [QUERIES_W] = { .whole = "self_attn.q_b_proj.weight" },
        [KV_LATENT_W] = { .whole = "self_attn.kv_a_proj_with_mqa.weight" },
        [KV_LATENT_B] = { .whole = "self_attn.kv_a_proj_with_mqa.bias" },
        [KV_NORM_W] = { .whole = "self_attn.kv_a_layernorm.weight" },
        [KEYS_VALUES_W] = { .whole = "self_attn.kv_b_proj.weight" },
        [ROUTER_W] = { .whole = "mlp.gate.weight" },
        [SHARED_UP_W] = { "mlp.shared_experts.gate_up_proj.weight",
                          { "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight" } },
        [SHARED_DOWN_W] = { .whole = "mlp.shared_experts.down_proj.weight" },
    },
    .expert = "mlp.experts.%d.",
    .expert_up = { "gate_up_proj.weight", { "gate_proj.weight", "up_proj.weight" } },
    .expert_down = { .whole = "down_proj.weight" },
    .router_bias = "mlp.gate.e_score_correction_bias",
    .stream_queries = { .whole = "self_attn.q_proj.weight" },
};

static const struct naming gpt_oss_naming = {
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        LLAMA_NAMES,
        [SINKS] = { "self_attn.sinks.weight", { "self_attn.sinks" } },
        [ROUTER_W] = { .whole = "mlp.router.weight" }, [ROUTER_B] = { .whole = "mlp.router.bias" },
    },
    .expert = "mlp.experts.%d.", .stack = "mlp.experts.",
    .expert_up = { "gate_up_proj.weight", { "gate_up_proj" } },
    .expert_up_bias = { "gate_up_proj.bias", { "gate_up_proj_bias" } },
    .expert_down = { "down_proj.weight", { "down_proj" } },
    .expert_down_bias = { "down_proj.bias", { "down_proj_bias" } },
};

#define HALF_QKV(n) { "self_attn." n ".qkv_proj.weight", { "self_attn." n ".q_proj.weight",                          \
                                                           "self_attn." n ".k_proj.weight",                          \
                                                           "self_attn." n ".v_proj.weight" } }
#define HALF_UP(n) { "mlps." n ".gate_up_proj.weight", { "mlps." n ".gate_proj.weight", "mlps." n ".up_proj.weight" } }

static const struct naming scmoe_naming = {         /* LongCat-Flash's */
    .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm",
    .of_block = {
        [LN1_W] = { .whole = "input_layernorm.0.weight" }, [SECOND_LN1_W] = { .whole = "input_layernorm.1.weight" },
        [QKV_W] = HALF_QKV("0"),                           [SECOND_QKV_W] = HALF_QKV("1"),
        [PROJ_W] = { .whole = "self_attn.0.o_proj.weight" },
        [SECOND_PROJ_W] = { .whole = "self_attn.1.o_proj.weight" },
        [LN2_W] = { .whole = "post_attention_layernorm.0.weight" },
        [SECOND_LN2_W] = { .whole = "post_attention_layernorm.1.weight" },
        [DENSE_UP_W] = HALF_UP("0"),                       [SECOND_UP_W] = HALF_UP("1"),
        [DENSE_DOWN_W] = { .whole = "mlps.0.down_proj.weight" },
        [SECOND_DOWN_W] = { .whole = "mlps.1.down_proj.weight" },
        [ROUTER_W] = { .whole = "mlp.router.classifier.weight" },
    },
    .expert = "mlp.experts.%d.",
    .expert_up = { "gate_up_proj.weight", { "gate_proj.weight", "up_proj.weight" } },
    .expert_down = { .whole = "down_proj.weight" },
};

static const struct naming gptj_naming = {
    .in_files = "transformer.", .block = "h.%d.", .tokens = "wte", .norm = "ln_f",
    .of_block = {
        [LN1_W] = { .whole = "ln_1.weight" },           [LN1_B] = { .whole = "ln_1.bias" },
        [QKV_W] = { "attn.qkv_proj.weight", { "attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight" } },
        [PROJ_W] = { .whole = "attn.out_proj.weight" },
        [UP_W] = { .whole = "mlp.fc_in.weight" },       [UP_B] = { .whole = "mlp.fc_in.bias" },
        [DOWN_W] = { .whole = "mlp.fc_out.weight" },    [DOWN_B] = { .whole = "mlp.fc_out.bias" },
    },
};

const struct naming *naming_of(const struct model_config *config)
{
    static const struct naming *const of_family[FAMILY_COUNT] = {
        [FAMILY_GPT2] = &gpt2_naming, [FAMILY_LLAMA] = &llama_naming, [FAMILY_MIXTRAL] = &llama_naming,
        [FAMILY_GPTJ] = &gptj_naming, [FAMILY_QWEN2] = &llama_naming,
        [FAMILY_PARSCALE] = &llama_naming,
        [FAMILY_SCMOE] = &scmoe_naming, [FAMILY_QWEN3] = &llama_naming,
        [FAMILY_MISTRAL] = &llama_naming, [FAMILY_PHI3] = &phi3_naming, [FAMILY_OLMO2] = &olmo2_naming,
        [FAMILY_QWEN3_MOE] = &qwen3_moe_naming, [FAMILY_GEMMA] = &llama_naming,
        [FAMILY_GEMMA2] = &gemma2_naming, [FAMILY_GEMMA3] = &gemma2_naming,
        [FAMILY_DEEPSEEK_V2] = &deepseek_naming, [FAMILY_DEEPSEEK_V3] = &deepseek_naming,
        [FAMILY_GPT_OSS] = &gpt_oss_naming,
    };
    return of_family[model_family(config)];
}
