/* deepseek.c -- DeepSeek-V2: latent attention, experts, those that every token goes through, and dense layers first.
 *
 * Along tp latents and their norms are computed whole on every device, and heads are cut (run_latent.c).
 *
 * Source  DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, as transformers has it
 */
#include "emulated_devices/model/program.h"

#define QUERIES_OF_A_LATENT                                                                                            \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },                 \
    { OP_MATRIX,    .out = "attn.q_latent", .in = { "ln_1" },            .param = "self_attn.q_a_proj",                \
      .role = ROLE_LATENT, .width = WIDTH_Q_LATENT },                                                                  \
    { OP_LATENT_NORM, .out = "attn.q_normed", .in = { "attn.q_latent" }, .param = "self_attn.q_a_layernorm",           \
      .role = ROLE_LATENT_NORM, .width = WIDTH_Q_LATENT },                                                             \
    { OP_MATRIX,    .out = "attn.q",       .in = { "attn.q_normed" },    .param = "self_attn.q_b_proj",                \
      .role = ROLE_QUERIES },

#define QUERIES_OF_THE_STREAM                                                                                          \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },                 \
    { OP_MATRIX,    .out = "attn.q",       .in = { "ln_1" },             .param = "self_attn.q_proj",                  \
      .role = ROLE_QUERIES },

#define TO_THE_FEED_FORWARD                                                                                            \
    { OP_MATRIX,    .out = "attn.kv_latent", .in = { "ln_1" },           .param = "self_attn.kv_a_proj_with_mqa",      \
      .role = ROLE_LATENT, .width = WIDTH_KV_LATENT },                                                                 \
    { OP_LATENT_NORM, .out = "attn.kv_normed", .in = { "attn.kv_latent" }, .param = "self_attn.kv_a_layernorm",        \
      .role = ROLE_LATENT_NORM, .width = WIDTH_KV_NORMED },                                                            \
    { OP_MATRIX,    .out = "attn.kv",      .in = { "attn.kv_normed" },   .param = "self_attn.kv_b_proj",               \
      .role = ROLE_KEYS_VALUES },                                                                                      \
    { OP_JOIN,      .out = "attn.qkv",     .in = { "attn.q", "attn.kv", "attn.kv_latent" }, .unseen = true },          \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },                                                     \
    { OP_ATTENTION, .out = "attn.padded",  .in = { "attn.rotated" },     .unseen = true },                             \
    { OP_NARROW,    .out = "attn.heads",   .in = { "attn.padded" } },                                                  \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",                  \
      .role = ROLE_ATTENTION_OUT },                                                                                    \
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },       \
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },                                           \
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },

#define EXPERTS                                                                                                        \
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "mlp.gate", .role = ROLE_ROUTER },   \
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },                                              \
    { OP_MIXTURE,   .out = "routed.out",   .in = { "ln_2", "router.weights" }, .param = "mlp.experts" },               \
    { OP_MATRIX,    .out = "shared.up",    .in = { "ln_2" },             .param = "mlp.shared_experts.gate_up_proj",   \
      .role = ROLE_SHARED_UP },                                                                                        \
    { OP_SWIGLU,    .out = "shared.act",   .in = { "shared.up" } },                                                    \
    { OP_MATRIX,    .out = "shared.out",   .in = { "shared.act" },       .param = "mlp.shared_experts.down_proj",      \
      .role = ROLE_SHARED_DOWN },                                                                                      \
    { OP_ADD,       .out = "mlp.out",      .in = { "routed.out", "shared.out" } },

#define DENSE                                                                                                          \
    { OP_MATRIX,    .out = "dense.up",     .in = { "ln_2" },             .param = "mlp.gate_up_proj",                  \
      .role = ROLE_DENSE_UP },                                                                                         \
    { OP_SWIGLU,    .out = "dense.act",    .in = { "dense.up" } },                                                     \
    { OP_MATRIX,    .out = "mlp.out",      .in = { "dense.act" },        .param = "mlp.down_proj",                     \
      .role = ROLE_DENSE_DOWN },

#define FROM_THE_FEED_FORWARD                                                                                          \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },             \
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },                                           \
    { .op = OP_END }

static const struct node block[] = { QUERIES_OF_A_LATENT TO_THE_FEED_FORWARD EXPERTS FROM_THE_FEED_FORWARD },
                         dense_block[] = { QUERIES_OF_A_LATENT TO_THE_FEED_FORWARD DENSE FROM_THE_FEED_FORWARD },
                         plain_block[] = { QUERIES_OF_THE_STREAM TO_THE_FEED_FORWARD EXPERTS FROM_THE_FEED_FORWARD },
                         plain_dense[] = { QUERIES_OF_THE_STREAM TO_THE_FEED_FORWARD DENSE FROM_THE_FEED_FORWARD };

const struct program
    program_deepseek = { llama_embedding, block, llama_loss, "model.layers.%d.", dense_block },
    program_deepseek_plain = { llama_embedding, plain_block, llama_loss, "model.layers.%d.", plain_dense };
