/* olmo2.c -- OLMo 2: a Llama that norms what attention and the feed-forward give, and not what they read; its queries,
 * and its keys, pass an rmsnorm of all heads before their rotary positions.
 *
 * Source  Team OLMo, "2 OLMo 2 Furious", arXiv:2501.00656
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  olmo3.c uses
 *         tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Olmo2Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .head_norms = true, .normed_together = true, .norms_at = NORMS_AFTER,
           .eps = 1e-5 },
    .rope_theta = 10000, .pad_token = 1,
};

static const struct config_key keys[] = {
    DECODER_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token),
    { .name = NULL },
};

const struct naming olmo2_naming = {
    DECODER_NAMES,
    .of_block = {
        LLAMA_MATRICES,
        [LN1_W] = { .whole = "post_attention_layernorm.weight" },
        [LN2_W] = { .whole = "post_feedforward_layernorm.weight" },
    },
};

const struct node olmo2_block[] = {
    { OP_MATRIX,    .out = "attn.qkv",     .in = { "in" },         .param = QKV_W },
    NODES_HEAD_NORMS,
    NODES_ATTENTION,
    { OP_NORM,      .out = "ln_1",         .in = { "attn.out" },   .param = LN1_W },
    NODES_JOIN_ATTENTION("ln_1"),
    NODES_FEED(OP_SWIGLU, "mid"),
    { OP_NORM,      .out = "ln_2",         .in = { "mlp.out" },    .param = LN2_W },
    NODES_JOIN_FEED("ln_2")
};

const struct family family_olmo2 = {
    .name = "olmo2", .title = "an OLMo 2", .architecture = "Olmo2ForCausalLM", .without_head = "Olmo2Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &olmo2_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES },
    .program = { { llama_embedding, olmo2_block, llama_loss } },
};
