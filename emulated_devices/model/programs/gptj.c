/* gptj.c -- GPT-J: attention and the feed-forward side by side, both from one layernorm; rotary positions; a biased
 * output.
 *
 * Source  B. Wang, A. Komatsuzaki, "GPT-J-6B: a 6 billion parameter autoregressive language model", 2021; as
 *         transformers has it
 */
#include "emulated_devices/model/program.h"

static const struct node embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },              .param = "wte", .role = ROLE_TOKENS,
      .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "tokens" },           .place = "embedding" },
    { .op = OP_END }
};

static const struct node block[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "ln_1" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "attn.qkv_proj", .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "attn.out_proj",
      .role = ROLE_ATTENTION_OUT },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_1" },             .param = "mlp.fc_in", .role = ROLE_UP },
    { OP_GELU,      .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.fc_out", .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "branches",     .in = { "attn.dropped", "mlp.dropped" }, .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "in", "branches" } },
    { .op = OP_END }
};

static const struct node loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },               .param = "ln_f" },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },             .param = "lm_head", .role = ROLE_HEAD },
    { OP_LOSS,      .out = NULL,           .in = { "logits" } },
    { .op = OP_END }
};

const struct program program_gptj = { embedding, block, loss, "h.%d.", NULL };
