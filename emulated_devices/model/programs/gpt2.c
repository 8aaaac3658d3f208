/* gpt2.c -- GPT-2: layernorms, learned positions, gelu.
 *
 * Source  A. Radford et al., "Language models are unsupervised multitask learners", 2019
 */
#include "emulated_devices/model/program.h"

static const struct node embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },              .param = "wte", .role = ROLE_TOKENS,
      .unseen = true },
    { OP_POSITIONS, .out = "placed",       .in = { "tokens" },           .param = "wpe", .role = ROLE_POSITIONS,
      .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "placed" },           .place = "embedding" },
    { .op = OP_END }
};

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "ln_1" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "attn.c_attn", .role = ROLE_QKV },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.qkv" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "attn.c_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "ln_2" },
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_2" },             .param = "mlp.c_fc", .role = ROLE_UP },
    { OP_GELU,      .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.c_proj", .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

static const struct node loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },               .param = "ln_f" },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },             .param = "lm_head", .role = ROLE_HEAD },
    { OP_LOSS,      .out = NULL,           .in = { "logits" } },
    { .op = OP_END }
};

const struct program program_gpt2 = { embedding, block, loss, "h.%d.", NULL };
