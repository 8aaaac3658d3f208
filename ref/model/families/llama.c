/* llama.c -- Llama: rmsnorms, rotary positions, grouped-query attention, a gated feed-forward.  There may be biases of
 * its attention, of its feed-forward, or of both.
 *
 * Source  H. Touvron et al., "LLaMA: open and efficient foundation language models", arXiv:2302.13971
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  Other families
 *         use tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* LlamaConfig's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .eps = 1e-6 },
    .rope_theta = 10000, .pad_token = NO_TOKEN,
};

static const struct config_key keys[] = {
    LLAMA_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("mlp_bias", KEY_FLAG, mlp_bias),
    { .name = NULL },
};

const struct naming llama_naming = { DECODER_NAMES, .of_block = { LLAMA_NAMES } };

const struct node llama_embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },        .param = TOKENS_W, .unseen = true },
    { OP_SCALE,     .out = "scaled",       .in = { "tokens" },     .factor = FACTOR_EMBEDDING, .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "scaled" },     .place = "embedding" },
    { .op = OP_END }
}, llama_block[] = {
    NODES_QKV,
    NODES_HEAD_NORMS,
    NODES_ATTENTION,
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_SWIGLU, "ln_2"),
    NODES_JOIN_FEED("mlp.out")
}, llama_loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },         .param = FINAL_NORM_W },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },       .param = HEAD_W },
    { OP_SCALE,     .out = "scaled",       .in = { "logits" },     .factor = FACTOR_LOGITS },
    { OP_LOSS,      .out = NULL,           .in = { "scaled" } },
    { .op = OP_END }
};

const struct family family_llama = {
    .name = "llama", .title = "a Llama", .architecture = "LlamaForCausalLM", .without_head = "LlamaModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_FEED_BIASES },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
