/* mixtral.c -- Mixtral: a Llama in whose feed-forward every token goes to k of E experts.
 *
 * Source  A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "block_sparse_moe.gate",
      .role = ROLE_ROUTER },
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" }, .param = "block_sparse_moe.experts" },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

const struct program program_mixtral = { llama_embedding, block, llama_loss, "model.layers.%d." };
