/* gpt_oss.c -- GPT-OSS: a Mixtral whose queries see a sink beside their keys, in layers with windows and without, with
 * biases, and experts that are clamped swiglus.
 *
 * Source  OpenAI, "gpt-oss-120b & gpt-oss-20b model card", arXiv:2508.10925, as transformers has it
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_SINK_ATTENTION, .out = "attn.heads", .in = { "attn.rotated" },  .param = "self_attn.sinks",
      .role = ROLE_SINKS },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "mlp.router", .role = ROLE_ROUTER },
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" }, .param = "mlp.experts" },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

const struct program program_gpt_oss = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL };
