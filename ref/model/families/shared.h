/* shared.h -- what several families have in common: rows of tables of nodes, tables, names, lists of keys.
 *
 * A row of a node is { operation, the slot that it writes, { slots that it reads }, its parameter }.  Files of
 * ref/model/families/ use these tables.  A function reports ERR_FORMAT with the key that does not fit.
 */
#ifndef ORRERY_FAMILIES_SHARED_H
#define ORRERY_FAMILIES_SHARED_H

#include "ref/model/config_json/config_json.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/naming.h"
#include "ref/model/params.h"

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

extern const struct node llama_embedding[], llama_block[], llama_loss[], mixtral_block[], mixtral_shared_block[],
    mixtral_dense_block[], gemma_embedding[], gemma2_block[], gemma2_loss[], deepseek_v2_block[],
    deepseek_v2_dense_block[], olmo2_block[], gpt2_embedding[], gpt2_block[], starcoder2_block[];

/* Queries, keys and values of the normed stream, as one matrix. */
#define NODES_QKV                                                                                                      \
    { OP_NORM,      .out = "ln_1",         .in = { "in" },         .param = LN1_W },                                   \
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },       .param = QKV_W }

/* Norms of heads, in models that have them. */
#define NODES_HEAD_NORMS                                                                                               \
    { OP_HEAD_NORM, .out = "attn.normed",  .in = { "attn.qkv" },   .param = HEAD_NORM_W, .when = HAS_HEAD_NORMS }

/* Attention of rotated queries and keys, to the matrix behind it. */
#define NODES_ATTENTION                                                                                                \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.normed" } },                                                  \
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },                                                 \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W }

/* And of the families that norm no heads. */
#define NODES_PLAIN_ATTENTION                                                                                          \
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },                                                     \
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },                                                 \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" }, .param = PROJ_W }

/* The branch of attention, in the slot out_, joins the stream; and that of the feed-forward, at the block's end.  A
 * branch is multiplied in models that have the factor. */
#define NODES_JOIN_ATTENTION(out_)                                                                                     \
    { OP_SCALE,     .out = "attn.scaled",  .in = { out_ },         .factor = FACTOR_RESIDUAL, .unseen = true },        \
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "attn.scaled" }, .place = "attention", .unseen = true },            \
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } }

#define NODES_JOIN_FEED(out_)                                                                                          \
    { OP_SCALE,     .out = "mlp.scaled",   .in = { out_ },         .factor = FACTOR_RESIDUAL, .unseen = true },        \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.scaled" },  .place = "mlp", .unseen = true },                  \
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },                                           \
    { .op = OP_END }

/* In a block whose branches are parallel, the sum of both joins the stream. */
#define NODES_JOIN_BOTH                                                                                                \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "mlp.out" },    .place = "mlp", .unseen = true },                   \
    { OP_ADD,       .out = "branches",     .in = { "attn.dropped", "mlp.dropped" }, .unseen = true },                  \
    { OP_ADD,       .out = "out",          .in = { "in", "branches" } },                                               \
    { .op = OP_END }

#define NODE_SECOND_NORM { OP_NORM,      .out = "ln_2",         .in = { "mid" },        .param = LN2_W }

/* A feed-forward of two matrices, of the slot in_. */
#define NODES_FEED(activation, in_)                                                                                    \
    { OP_MATRIX,    .out = "mlp.up",       .in = { in_ },          .param = UP_W },                                    \
    { activation,   .out = "mlp.act",      .in = { "mlp.up" } },                                                       \
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },    .param = DOWN_W }

/* These nodes are the feed-forward of a dense layer among those of a mixture. */
#define NODES_DENSE_FEED                                                                                               \
    { OP_MATRIX,    .out = "dense.up",     .in = { "ln_2" },       .param = UP_W, .dense = true },                     \
    { OP_SWIGLU,    .out = "dense.act",    .in = { "dense.up" } },                                                     \
    { OP_MATRIX,    .out = "mlp.out",      .in = { "dense.act" },  .param = DOWN_W, .dense = true }

/* A mixture, whose result is out_. */
#define NODES_MIXTURE(out_)                                                                                            \
    { OP_MATRIX,    .out = "router.logits", .in = { "ln_2" },       .param = ROUTER_W },                               \
    { OP_ROUTE,     .out = "router.weights", .in = { "router.logits" } },                                              \
    { OP_MIXTURE,   .out = out_,           .in = { "ln_2", "router.weights" }, .param = UP_W }

/* A mixture beside shared experts, which may have a gate. */
#define NODES_SHARED_MIXTURE                                                                                           \
    NODES_MIXTURE("routed.out"),                                                                                       \
    { OP_MATRIX,    .out = "shared.up",    .in = { "ln_2" },       .param = SHARED_UP_W },                             \
    { OP_SWIGLU,    .out = "shared.act",   .in = { "shared.up" } },                                                    \
    { OP_MATRIX,    .out = "shared.out",   .in = { "shared.act" }, .param = SHARED_DOWN_W },                           \
    { OP_MATRIX,    .out = "shared.gate",  .in = { "ln_2" },       .param = SHARED_GATE_W, .when = HAS_GATED_EXPERTS },\
    { OP_GATE,      .out = "shared.gated", .in = { "shared.out", "shared.gate" }, .when = HAS_GATED_EXPERTS },         \
    { OP_ADD,       .out = "mlp.out",      .in = { "routed.out", "shared.gated" } }

/* ---- names of parameters ----------------------------------------------------------------------------------------- */

extern const struct naming llama_naming, qwen3_moe_naming, gemma2_naming, deepseek_v2_naming, olmo2_naming;

#define DECODER_NAMES .in_files = "", .block = "model.layers.%d.", .tokens = "model.embed_tokens", .norm = "model.norm"

#define LLAMA_ATTENTION                                                                                                \
    [QKV_W] = { "self_attn.qkv_proj.weight",                                                                           \
                { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" } },                 \
    [QKV_B] = { "self_attn.qkv_proj.bias",                                                                             \
                { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" } },                       \
    [HEAD_NORM_W] = { "self_attn.qk_norm.weight", { "self_attn.q_norm.weight", "self_attn.k_norm.weight" } },          \
    [PROJ_W] = { .whole = "self_attn.o_proj.weight" },                                                                 \
    [PROJ_B] = { .whole = "self_attn.o_proj.bias" }

#define LLAMA_MATRICES                                                                                                 \
    LLAMA_ATTENTION,                                                                                                   \
    [UP_W] = { "mlp.gate_up_proj.weight", { "mlp.gate_proj.weight", "mlp.up_proj.weight" } },                          \
    [UP_B] = { "mlp.gate_up_proj.bias", { "mlp.gate_proj.bias", "mlp.up_proj.bias" } },                                \
    [DOWN_W] = { .whole = "mlp.down_proj.weight" }, [DOWN_B] = { .whole = "mlp.down_proj.bias" }

#define LLAMA_NAMES LLAMA_MATRICES, [LN1_W] = { .whole = "input_layernorm.weight" }, \
                    [LN2_W] = { .whole = "post_attention_layernorm.weight" }

/* Norms with biases, and a Llama's attention. */
#define LAYERNORM_NAMES                                                                                                \
    [LN1_W] = { .whole = "input_layernorm.weight" }, [LN1_B] = { .whole = "input_layernorm.bias" },                    \
    [LN2_W] = { .whole = "post_attention_layernorm.weight" }, [LN2_B] = { .whole = "post_attention_layernorm.bias" },  \
    LLAMA_ATTENTION

#define GPT2_NAMES                                                                                                     \
    [LN1_W] = { .whole = "ln_1.weight" },           [LN1_B] = { .whole = "ln_1.bias" },                                \
    [QKV_W] = { .whole = "attn.c_attn.weight" },    [QKV_B] = { .whole = "attn.c_attn.bias" },                         \
    [PROJ_W] = { .whole = "attn.c_proj.weight" },   [PROJ_B] = { .whole = "attn.c_proj.bias" },                        \
    [LN2_W] = { .whole = "ln_2.weight" },           [LN2_B] = { .whole = "ln_2.bias" },                                \
    [UP_W] = { .whole = "mlp.c_fc.weight" },        [UP_B] = { .whole = "mlp.c_fc.bias" },                             \
    [DOWN_W] = { .whole = "mlp.c_proj.weight" },    [DOWN_B] = { .whole = "mlp.c_proj.bias" }

/* Experts with the names of a Llama's feed-forward. */
#define EXPERT_NAMES                                                                                                   \
    .expert = "mlp.experts.%d.",                                                                                       \
    .expert_up = { "gate_up_proj.weight", { "gate_proj.weight", "up_proj.weight" } },                                  \
    .expert_down = { .whole = "down_proj.weight" }

/* ---- config.json ------------------------------------------------------------------------------------------------- */

#define RMS_DECODER .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .init_std = 0.02

#define QWEN_WINDOWS .window_rule = WINDOWS_LATE, .sliding_window = 4096, .max_window_layers = 28

#define GEMMA_OPTIONS                                                                                                  \
    RMS_DECODER, .mlp = MLP_GEGLU, .norms_from_one = true, .scaled_embedding = true, .tied = true, .eps = 1e-6

extern const struct config_key mixtral_keys[];

/** Read, and write, what a GPT-2 and a GPT-J derive; what a DeepSeek does. */
enum error_code gpt2_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
enum error_code deepseek_finish(struct config_reading *, const cJSON *root, const char *path, struct error *);
bool deepseek_to_json(const struct model_config *, cJSON *root);

/** Check that a router is the one of its class in transformers, a DeepSeek-V2's or a V3's, unless the file says that
 *  the router is another one; write the router, and the losses beside it. */
enum error_code class_router_check(const struct config_reading *, const char *path, struct error *);
bool class_router_to_json(const struct model_config *, cJSON *root);
bool class_losses_to_json(const struct model_config *, cJSON *root);

#endif
