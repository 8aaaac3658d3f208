/* qwen3_moe.c -- Qwen3-MoE: a Qwen3 in whose feed-forward every token goes to k of E experts; some layers may have a
 * dense feed-forward instead.
 *
 * Source  A. Yang et al., "Qwen3 technical report", arXiv:2505.09388, as transformers has it
 */
#include "emulated_devices/model/program.h"

#define TO_THE_FEED_FORWARD                                                                                            \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },                 \
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",                \
      .role = ROLE_QKV },                                                                                              \
    { OP_HEAD_NORM, .out = "attn.normed",  .in = { "attn.qkv" },         .param = "self_attn.qk_norm",                 \
      .role = ROLE_HEAD_NORM },                                                                                        \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.normed" } },                                                  \
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },                                                 \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",                  \
      .role = ROLE_ATTENTION_OUT },                                                                                    \
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },       \
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },                                           \
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },

#define FROM_THE_FEED_FORWARD                                                                                          \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },             \
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },                                           \
    { .op = OP_END }

static const struct node block[] = {
    TO_THE_FEED_FORWARD
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "mlp.gate", .role = ROLE_ROUTER },
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" }, .param = "mlp.experts" },
    FROM_THE_FEED_FORWARD
};

static const struct node dense_block[] = {
    TO_THE_FEED_FORWARD
    { OP_MATRIX,    .out = "dense.up",     .in = { "ln_2" },             .param = "mlp.gate_up_proj",
      .role = ROLE_DENSE_UP },
    { OP_SWIGLU,    .out = "dense.act",    .in = { "dense.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "dense.act" },        .param = "mlp.down_proj",
      .role = ROLE_DENSE_DOWN },
    FROM_THE_FEED_FORWARD
};

const struct program program_qwen3_moe = { llama_embedding, block, llama_loss, "model.layers.%d.", dense_block };
