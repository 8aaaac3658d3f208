/* scmoe.c -- a mixture on a shortcut (ScMoE): a layer is two blocks of attention and a dense feed-forward; a mixture
 * reads what the first feed-forward does, and is added at the end of the second.
 *
 * Rows travel to the experts while the first dense feed-forward and the product for the second block's q, k and v are
 * computed, and back during its attention and second dense feed-forward; between these the experts compute.
 *
 * Source  W. Cai et al., "Shortcut-connected expert parallelism for accelerating mixture-of-experts", arXiv:2404.05019;
 *         Meituan LongCat Team, "LongCat-Flash technical report", arXiv:2509.01322, as transformers has it, with
 *         grouped-query attention in place of its latent attention
 */
#include "emulated_devices/model/program.h"

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm.0" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.0.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.0.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm.0" },

    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "mlp.router.classifier",
      .role = ROLE_ROUTER },
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" }, .param = "mlp.experts",
      .before = "second.attn.rotated" },

    { OP_MATRIX,    .out = "dense.up",     .in = { "ln_2" },             .param = "mlps.0.gate_up_proj",
      .role = ROLE_UP },
    { OP_SWIGLU,    .out = "dense.act",    .in = { "dense.up" } },
    { OP_MATRIX,    .out = "dense.out",    .in = { "dense.act" },        .param = "mlps.0.down_proj",
      .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "dense.dropped", .in = { "dense.out" },       .place = "dense", .unseen = true },
    { OP_ADD,       .out = "half",         .in = { "mid", "dense.dropped" } },

    { OP_NORM,      .out = "second.ln_1",  .in = { "half" },             .param = "input_layernorm.1" },
    { OP_MATRIX,    .out = "second.attn.qkv", .in = { "second.ln_1" },   .param = "self_attn.1.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "second.attn.rotated", .in = { "second.attn.qkv" }, .second = true },
    { OP_ATTENTION, .out = "second.attn.heads", .in = { "second.attn.rotated" }, .second = true },
    { OP_MATRIX,    .out = "second.attn.out", .in = { "second.attn.heads" }, .param = "self_attn.1.o_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "second.attn.dropped", .in = { "second.attn.out" }, .place = "attention", .second = true,
      .unseen = true },
    { OP_ADD,       .out = "second.mid",   .in = { "half", "second.attn.dropped" } },
    { OP_NORM,      .out = "second.ln_2",  .in = { "second.mid" },       .param = "post_attention_layernorm.1" },
    { OP_MATRIX,    .out = "second.dense.up", .in = { "second.ln_2" },   .param = "mlps.1.gate_up_proj",
      .role = ROLE_UP },
    { OP_SWIGLU,    .out = "second.dense.act", .in = { "second.dense.up" } },
    { OP_MATRIX,    .out = "second.dense.out", .in = { "second.dense.act" }, .param = "mlps.1.down_proj",
      .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "second.dense.dropped", .in = { "second.dense.out" }, .place = "dense", .second = true,
      .unseen = true },
    { OP_ADD,       .out = "dense.sum",    .in = { "second.mid", "second.dense.dropped" }, .unseen = true },

    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "dense.sum", "mlp.dropped" } },
    { .op = OP_END }
};

const struct program program_scmoe = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL };
