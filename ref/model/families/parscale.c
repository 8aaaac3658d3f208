/* parscale.c -- ParScale: a Qwen2 with parallel streams.  Each stream has keys and values of its own before the first
 * token; a learned weighted mean of the streams goes to the output matrix.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/families.h"
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* those of Qwen2ParScaleConfig, QwenLM/ParScale */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .biases = HAS_BIAS(ROLE_QKV), .eps = 1e-6, .K = 32,
           .streams = { .P = 1, .prefix = 48, .smoothing = 0.01 } },
    .rope_theta = 10000, .pad_token = NO_TOKEN,
};

/* A window is described even where it is not used. */
static const struct config_key keys[] = {
    DECODER_KEYS,
    KEY_ONLY_AS("use_sliding_window", "false"),
    KEY_LEFT("sliding_window"), KEY_LEFT("max_window_layers"),
    CONFIG_TO("parscale_n", KEY_SIZE_OR_NULL, c.streams.P),
    CONFIG_TO("parscale_n_tokens", KEY_SIZE_OR_NULL, c.streams.prefix),
    CONFIG_TO("parscale_attn_smooth", KEY_REAL, c.streams.smoothing),
    { .name = NULL },
};

static const struct naming naming = {
    DECODER_NAMES, .of_block = { LLAMA_NAMES, [PREFIX] = { .whole = "self_attn.prefix_kv.weight" } },
};

static const struct node block[] = {
    NODES_QKV,
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_PREFIXED_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" }, .param = PREFIX },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W },
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_SWIGLU, "ln_2"),
    NODES_JOIN_FEED("mlp.out")
}, loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },         .param = FINAL_NORM_W },
    { OP_BESIDE,    .out = "streams.beside", .in = { "ln_f" },       .unseen = true },
    { OP_MATRIX,    .out = "streams.up",   .in = { "streams.beside" }, .param = STREAMS_UP_W },
    { OP_SILU,      .out = "streams.act",  .in = { "streams.up" } },
    { OP_MATRIX,    .out = "streams.logits", .in = { "streams.act" }, .param = STREAMS_DOWN_W },
    { OP_MIX,       .out = "streams.mean", .in = { "streams.beside", "streams.logits" } },
    { OP_MATRIX,    .out = "logits",       .in = { "streams.mean" }, .param = HEAD_W },
    { OP_LOSS,      .out = NULL,           .in = { "logits" } },
    { .op = OP_END }
};

/* A file with one stream is read as a Qwen2's. */
const struct family family_parscale = {
    .name = "qwen2_parscale", .title = "a ParScale", .architecture = "Qwen2ParScaleForCausalLM",
    .without_head = "Qwen2Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &naming, .must = { HAS_STREAMS }, .may = { HAS_FEWER_KEYS },
    .program = { { llama_embedding, block, loss } }, .streamed = &family_qwen2,
};
