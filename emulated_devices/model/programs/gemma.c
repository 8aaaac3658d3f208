/* gemma.c -- Gemma: a Llama with scaled embeddings, norms whose factors are 1 + their weights, and a geglu.
 *
 * Source  Gemma Team, "Gemma: open models based on Gemini research and technology", arXiv:2403.08295; as transformers
 *         has it
 */
#include "emulated_devices/model/program.h"

const struct node gemma_embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },              .param = "model.embed_tokens",
      .role = ROLE_TOKENS, .unseen = true },
    { OP_SCALE,     .out = "scaled",       .in = { "tokens" },           .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "scaled" },           .place = "embedding" },
    { .op = OP_END }
};

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
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_2" },             .param = "mlp.gate_up_proj", .role = ROLE_UP },
    { OP_GEGLU,     .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.down_proj", .role = ROLE_DOWN },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

const struct program program_gemma = { gemma_embedding, block, llama_loss, "model.layers.%d.", NULL };
