/* gemma2.c -- Gemma 2: a Gemma with norms of what its branches give, too, soft caps of attention's scores and of
 * logits, and windows in every second layer.
 *
 * Source  Gemma Team, "Gemma 2: improving open language models at a practical size", arXiv:2408.00118; as transformers
 *         has it
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.  gemma3.c uses
 *         tables of this file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Gemma2Config's */
    .c = { GEMMA_OPTIONS, .K = 4, .norms_at = NORMS_AROUND, .score_width = 256, .score_cap = 50, .logit_cap = 30 },
    .head_dim = 256, .rope_theta = 10000, .pad_token = 0, .window_rule = WINDOWS_BUT_EVERY, .window_needed = true,
    .sliding_window = 4096, .window_pattern = 2,
};

/* The first files also have the window by an earlier name. */
static const struct config_key keys[] = {
    LATER_GEMMA_KEYS(CONFIG_BOTH("attn_logit_softcapping", KEY_POSITIVE_OR_NONE, c.score_cap)),
    KEY_LEFT("sliding_window_size"),
    { .name = NULL },
};

const struct naming gemma2_naming = {
    DECODER_NAMES,
    .of_block = {
        LLAMA_MATRICES,
        [LN1_W] = { .whole = "input_layernorm.weight" },
        [AFTER1_W] = { .whole = "post_attention_layernorm.weight" },
        [LN2_W] = { .whole = "pre_feedforward_layernorm.weight" },
        [AFTER2_W] = { .whole = "post_feedforward_layernorm.weight" },
    },
};

const struct node gemma2_block[] = {
    NODES_QKV,
    NODES_HEAD_NORMS,
    NODES_ATTENTION,
    { OP_NORM,      .out = "post_1",       .in = { "attn.out" },   .param = AFTER1_W },
    NODES_JOIN_ATTENTION("post_1"),
    NODE_SECOND_NORM,
    NODES_FEED(OP_GEGLU, "ln_2"),
    { OP_NORM,      .out = "post_2",       .in = { "mlp.out" },    .param = AFTER2_W },
    NODES_JOIN_FEED("post_2")
}, gemma2_loss[] = {
    { OP_NORM,      .out = "ln_f",         .in = { "in" },         .param = FINAL_NORM_W },
    { OP_MATRIX,    .out = "logits",       .in = { "ln_f" },       .param = HEAD_W },
    { OP_CAP,       .out = "capped",       .in = { "logits" },     .when = HAS_LOGIT_CAP },
    { OP_LOSS,      .out = NULL,           .in = { "capped" } },
    { .op = OP_END }
};

const struct family family_gemma2 = {
    .name = "gemma2", .title = "a Gemma 2", .architecture = "Gemma2ForCausalLM", .without_head = "Gemma2Model",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &gemma2_naming,
    .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_WINDOWS, HAS_SOME_WINDOWS, HAS_SCORE_WIDTH, HAS_SCORE_CAP,
             HAS_LOGIT_CAP },
    .program = { { gemma_embedding, gemma2_block, gemma2_loss } },
};
