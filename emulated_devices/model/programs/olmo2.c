/* olmo2.c -- OLMo 2: a Llama that norms what attention and the feed-forward give, and not what they read; its queries,
 * and its keys, pass an rmsnorm of all heads before their rotary positions.
 *
 * Source  Team OLMo, "2 OLMo 2 Furious", arXiv:2501.00656
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "in" },               .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_HEAD_NORM, .out = "attn.normed",  .in = { "attn.qkv" },         .param = "self_attn.qk_norm",
      .role = ROLE_HEAD_NORM },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.normed" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_NORM,      .out = "ln_1",         .in = { "attn.out" },         .param = "post_attention_layernorm" },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "ln_1" },             .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_MATRIX,    .out = "mlp.up",       .in = { "mid" },              .param = "mlp.gate_up_proj", .role = ROLE_UP },
    { OP_SWIGLU,    .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.down_proj", .role = ROLE_DOWN },
    { OP_NORM,      .out = "ln_2",         .in = { "mlp.out" },          .param = "post_feedforward_layernorm" },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "ln_2" },             .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

const struct program program_olmo2 = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL };
