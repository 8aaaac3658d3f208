/* gemma2.c -- Gemma 2: a Gemma with norms of what its branches give, too, and soft caps of attention's scores and of
 * logits; and Gemma 3, which has norms of queries and keys in place of the caps.
 *
 * Source  Gemma Team, "Gemma 2: improving open language models at a practical size", arXiv:2408.00118; "Gemma 3
 *         technical report", arXiv:2503.19786; as transformers has them
 */
#include "emulated_devices/model/program.h"

#define FROM_ATTENTION_ON                                                                                              \
    { OP_ATTENTION, .out = "attn.heads",   .in = { "attn.rotated" } },                                                 \
    { OP_MATRIX,    .out = "attn.out",     .in = { "attn.heads" },       .param = "self_attn.o_proj",                  \
      .role = ROLE_ATTENTION_OUT },                                                                                    \
    { OP_NORM,      .out = "post_1",       .in = { "attn.out" },         .param = "post_attention_layernorm" },        \
    { OP_DROPOUT,   .out = "attn.dropped", .in = { "post_1" },           .place = "attention", .unseen = true },       \
    { OP_ADD,       .out = "mid",          .in = { "in", "attn.dropped" } },                                           \
    { OP_NORM,      .out = "ln_2",         .in = { "mid" },              .param = "pre_feedforward_layernorm" },       \
    { OP_MATRIX,    .out = "mlp.up",       .in = { "ln_2" },             .param = "mlp.gate_up_proj",                  \
      .role = ROLE_UP },                                                                                               \
    { OP_GEGLU,     .out = "mlp.act",      .in = { "mlp.up" } },                                                       \
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .param = "mlp.down_proj",                     \
      .role = ROLE_DOWN },                                                                                             \
    { OP_NORM,      .out = "post_2",       .in = { "mlp.out" },          .param = "post_feedforward_layernorm" },      \
    { OP_DROPOUT,   .out = "mlp.dropped",  .in = { "post_2" },           .place = "mlp", .unseen = true },             \
    { OP_ADD,       .out = "out",          .in = { "mid", "mlp.dropped" } },                                           \
    { .op = OP_END }

static const struct node block2[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.qkv" } },
    FROM_ATTENTION_ON
};

static const struct node block3[] = {
    { OP_NORM,      .out = "ln_1",         .in = { "in" },               .param = "input_layernorm" },
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "ln_1" },             .param = "self_attn.qkv_proj",
      .role = ROLE_QKV },
    { OP_HEAD_NORM, .out = "attn.normed",  .in = { "attn.qkv" },         .param = "self_attn.qk_norm",
      .role = ROLE_HEAD_NORM },
    { OP_ROTARY,    .out = "attn.rotated", .in = { "attn.normed" } },
    FROM_ATTENTION_ON
};

static const struct node capped_loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },               .param = "model.norm" },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },             .param = "lm_head", .role = ROLE_HEAD },
    { OP_CAP,       .out = "capped",       .in = { "logits" } },
    { OP_LOSS,      .out = NULL,           .in = { "capped" } },
    { .op = OP_END }
};

const struct program
    program_gemma2 = { gemma_embedding, block2, llama_loss, "model.layers.%d.", NULL },
    program_gemma2_capped = { gemma_embedding, block2, capped_loss, "model.layers.%d.", NULL },
    program_gemma3 = { gemma_embedding, block3, llama_loss, "model.layers.%d.", NULL },
    program_gemma3_capped = { gemma_embedding, block3, capped_loss, "model.layers.%d.", NULL };
