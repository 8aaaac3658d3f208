/* parscale.c -- ParScale: parallel streams of a Qwen2, each with a learned prefix in every layer, and a weighted mean
 * of their results before the output matrix.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_PREFIXED_ATTENTION, .out = "attn.heads", .in = { "attn.rotated" }, .param = "self_attn.prefix_kv",
      .role = ROLE_PREFIX },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_2" },             .param = "mlp.gate_up_proj", .role = ROLE_UP },
    { OP_SWIGLU,    .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.down_proj", .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

static const struct node loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },               .param = "model.norm" },
    { OP_BESIDE,    .out = "streams.beside", .in = { "ln_f" },           .unseen = true },
    { OP_MATRIX,    .out = "streams.up",   .in = { "streams.beside" },   .param = "model.aggregate_layer.0",
      .role = ROLE_STREAMS_UP },
    { OP_SILU,      .out = "streams.act",  .in = { "streams.up" } },
    { OP_MATRIX,    .out = "streams.logits", .in = { "streams.act" },    .param = "model.aggregate_layer.2",
      .role = ROLE_STREAMS_DOWN },
    { OP_MIX,       .out = "streams.mean", .in = { "streams.beside", "streams.logits" } },
    { OP_MATRIX,    .out = "logits",       .in = { "streams.mean" },     .param = "lm_head", .role = ROLE_HEAD },
    { OP_LOSS,      .out = NULL,           .in = { "logits" } },
    { .op = OP_END }
};

const struct program program_parscale = { llama_embedding, block, loss, "model.layers.%d.", NULL };
