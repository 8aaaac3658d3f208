/* llama.c -- Llama: rmsnorms, rotary positions, grouped-query attention, a gated feed-forward; and Qwen2, which is
 * the same with biases of queries, keys and values.  A Llama may have biases of its attention, of its feed-forward, or
 * of both.
 *
 * Source  H. Touvron et al., "LLaMA: open and efficient foundation language models", arXiv:2302.13971; A. Yang et
 *         al., "Qwen2 technical report", arXiv:2407.10671
 */
#include "emulated_devices/model/program.h"

const struct node llama_embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },              .param = "model.embed_tokens",
      .role = ROLE_TOKENS, .unseen = true },
    { OP_SCALE,     .out = "scaled",       .in = { "tokens" },           .factor = FACTOR_EMBEDDING, .unseen = true },
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
    { OP_SCALE,     .out = "attn.scaled",  .in = { "attn.out" },         .factor = FACTOR_RESIDUAL, .unseen = true },
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.scaled" },      .place = "attention", .unseen = true },
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_2" },             .param = "mlp.gate_up_proj", .role = ROLE_UP },
    { OP_SWIGLU,    .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.down_proj", .role = ROLE_DOWN },
    { OP_SCALE,     .out = "mlp.scaled",   .in = { "mlp.out" },          .factor = FACTOR_RESIDUAL, .unseen = true },
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.scaled" },       .place = "mlp", .unseen = true },
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },
    { .op = OP_END }
};

const struct node llama_loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },               .param = "model.norm" },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },             .param = "lm_head", .role = ROLE_HEAD },
    { OP_SCALE,     .out = "scaled",       .in = { "logits" },           .factor = FACTOR_LOGITS },
    { OP_LOSS,      .out = NULL,           .in = { "scaled" } },
    { .op = OP_END }
};

const struct program program_llama = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL };
