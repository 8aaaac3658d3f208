/* mixtral.c -- Mixtral: a Llama in whose feed-forward every token goes to k of E experts; also with shared experts,
 * which every token goes through, with and without a gate.
 *
 * Source  A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088; shared experts: ref/model/shared.c
 */
#include "emulated_devices/model/program.h"

#define TO_THE_ROUTER                                                                                                  \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },                 \
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",                \
      .role = ROLE_QKV },                                                                                              \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },                                                     \
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },                                                 \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",                  \
      .role = ROLE_ATTENTION_OUT },                                                                                    \
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.out" },         .place = "attention", .unseen = true },       \
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },                                           \
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "post_attention_layernorm" },        \
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },            .param = "block_sparse_moe.gate",             \
      .role = ROLE_ROUTER },                                                                                           \
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },

#define FROM_THE_MIXTURE                                                                                               \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },          .place = "mlp", .unseen = true },             \
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },                                           \
    { .op = OP_END }

#define SHARED_EXPERTS                                                                                                 \
    { OP_MATRIX,    .out = "shared.up",    .in = { "ln_2" },             .param = "block_sparse_moe.shared_expert.w13",\
      .role = ROLE_SHARED_UP },                                                                                        \
    { OP_SWIGLU,    .out = "shared.act",   .in = { "shared.up" } },                                                    \
    { OP_MATRIX,    .out = "shared.out",   .in = { "shared.act" },       .param = "block_sparse_moe.shared_expert.w2", \
      .role = ROLE_SHARED_DOWN },

static const struct node block[] = {
    TO_THE_ROUTER
    { OP_MIXTURE,   .out = "mlp.out",      .in = { "ln_2", "router.weights" }, .param = "block_sparse_moe.experts" },
    FROM_THE_MIXTURE
};

static const struct node shared_block[] = {
    TO_THE_ROUTER
    { OP_MIXTURE,   .out = "routed.out",   .in = { "ln_2", "router.weights" }, .param = "block_sparse_moe.experts" },
    SHARED_EXPERTS
    { OP_ADD,       .out = "mlp.out",      .in = { "routed.out", "shared.out" } },
    FROM_THE_MIXTURE
};

static const struct node gated_block[] = {
    TO_THE_ROUTER
    { OP_MIXTURE,   .out = "routed.out",   .in = { "ln_2", "router.weights" }, .param = "block_sparse_moe.experts" },
    SHARED_EXPERTS
    { OP_MATRIX,    .out = "shared.gate",  .in = { "ln_2" },             .param = "block_sparse_moe.shared_expert_gate",
      .role = ROLE_SHARED_GATE },
    { OP_GATE,      .out = "shared.gated", .in = { "shared.out", "shared.gate" } },
    { OP_ADD,       .out = "mlp.out",      .in = { "routed.out", "shared.gated" } },
    FROM_THE_MIXTURE
};

const struct program program_mixtral = { llama_embedding, block, llama_loss, "model.layers.%d.", NULL },
                     program_mixtral_shared = { llama_embedding, shared_block, llama_loss, "model.layers.%d.", NULL },
                     program_mixtral_gated = { llama_embedding, gated_block, llama_loss, "model.layers.%d.", NULL };
