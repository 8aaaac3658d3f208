/* gpt_oss.c -- GPT-OSS: a Mixtral whose queries see a sink beside their keys, in layers with windows and without, with
 * biases, and experts that are clamped swiglus.  A file that says nothing else has windows in every second layer and
 * YaRN.
 *
 * Source  OpenAI, "gpt-oss-120b & gpt-oss-20b model card", arXiv:2508.10925, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

/* 0.1 ln 32 + 1: what YaRN multiplies cosines and sines by, for the usual factor of 32. */
#define ENLARGED_OF_32 1.3465735902799727

static const struct config_reading defaults = {         /* GptOssConfig's */
    .c = { RMS_DECODER, .mlp = MLP_MIXTURE, .biases = BIASES_FEED | HAS_BIAS(ROLE_ROUTER), .sinks = true, .eps = 1e-5,
           .K = 8,
           .rotary = { .scaling = SCALING_YARN, .factor = 32, .low_frequency = 1, .high_frequency = 32,
                       .original_positions = 4096, .enlarged = ENLARGED_OF_32, .between_pairs = true },
           .mixture = { .E = 128, .k = 4, .router = { .normalized = true, .scale = 1 },
                        .clamped = { .alpha = 1.702, .limit = 7 }, .balance_coefficient = 0.001 } },
    .attention_bias = true, .head_dim = 64, .rope_theta = 150000, .pad_token = NO_TOKEN,
    .window_rule = WINDOWS_BUT_EVERY, .window_pattern = 2, .sliding_window = 128,
};

/* The released files have these besides, and no version reads them: the numbers of a token's experts and of the
 * original context under other names. */
static const struct config_key keys[] = {
    ROTARY_DECODER_KEYS, ROUTER_KEYS,
    CONFIG_TO("intermediate_size", KEY_SIZE, c.F),
    CONFIG_TO("head_dim", KEY_SIZE_OR_NULL, head_dim),
    KEY_ONLY_AS("hidden_act", "\"silu\""),
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("layer_types", KEY_LIST, layer_types),
    CONFIG_TO("num_local_experts", KEY_SIZE_OR_NULL, c.mixture.E),
    CONFIG_BOTH("tie_word_embeddings", KEY_FLAG, c.tied),
    CONFIG_BOTH("swiglu_alpha", KEY_REAL, c.mixture.clamped.alpha),
    CONFIG_BOTH("swiglu_limit", KEY_POSITIVE, c.mixture.clamped.limit),
    CONFIG_BOTH("attention_bias", KEY_FLAG, attention_bias),
    KEY_LEFT("experts_per_token"), KEY_LEFT("initial_context_length"),
    { .name = NULL },
};

static const struct naming naming = {
    DECODER_NAMES,
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

static const struct node block[] = {
    NODES_QKV,
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_SINK_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" }, .param = SINKS },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W },
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_MIXTURE("mlp.out"),
    NODES_JOIN_FEED("mlp.out")
};

const struct family family_gpt_oss = {
    .name = "gpt_oss", .title = "a GPT-OSS", .architecture = "GptOssForCausalLM", .without_head = "GptOssModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_WINDOWS, HAS_SOME_WINDOWS },
    .program = { { llama_embedding, block, llama_loss } },
};
