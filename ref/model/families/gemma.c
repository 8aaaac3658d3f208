/* gemma.c -- Gemma: a Llama with scaled embeddings, norms whose factors are 1 + their weights, a geglu, a padding token
 * and tied matrices if a file says nothing else.
 *
 * The feed-forward is a geglu in the tanh form.  Files say so in hidden_act, older ones in hidden_activation; the first
 * files have hidden_act "gelu", which means the tanh form as well.
 *
 * Source  Gemma Team, "Gemma: open models based on Gemini research and technology", arXiv:2403.08295; as transformers
 *         has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  gemma2.c and
 *         gemma3.c use tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* GemmaConfig's */
    .c = { GEMMA_OPTIONS, .K = 16 }, .head_dim = 256, .rope_theta = 10000, .pad_token = 0,
};

static const struct config_key keys[] = {
    GEMMA_KEYS,
    { .name = NULL },
};

const struct node gemma_embedding[] = {
    { OP_EMBED,     .out = "tokens",       .in = { "ids" },        .param = TOKENS_W, .unseen = true },
    { OP_SCALE,     .out = "scaled",       .in = { "tokens" },     .factor = FACTOR_EMBEDDING, .unseen = true },
    { OP_DROPOUT,   .out = "embedding",    .in = { "scaled" },     .place = "embedding" },
    { .op = OP_END }
};

static const struct node block[] = {
    NODES_QKV,
    NODES_HEAD_NORMS,
    NODES_ATTENTION,
    NODES_JOIN_ATTENTION("attn.out"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_GEGLU, "ln_2"),
    NODES_JOIN_FEED("mlp.out")
};

const struct family family_gemma = {
    .name = "gemma", .title = "a Gemma", .architecture = "GemmaForCausalLM", .without_head = "GemmaModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES },
    .program = { { gemma_embedding, block, llama_loss } },
};
