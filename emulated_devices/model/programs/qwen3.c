/* qwen3.c -- Qwen3: a Llama whose queries and keys pass an rmsnorm of each head before their rotary positions.
 *
 * Source  A. Yang et al., "Qwen3 technical report", arXiv:2505.09388
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_HEAD_NORM, .out = "attn.normed",  .in = { "attn.qkv" },         .param = "self_attn.qk_norm",
      .role = ROLE_HEAD_NORM },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.normed" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
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

const struct program program_qwen3 = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL };
