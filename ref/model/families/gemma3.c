/* gemma3.c -- the text model of a Gemma 3: a Gemma 2 with norms of queries and keys in place of the caps; layers with a
 * window, all but each sixth, have rotary positions of their own.
 *
 * Source  Gemma Team, "Gemma 3 technical report", arXiv:2503.19786; as transformers has it
 * Called  families.def lists the families; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Gemma3TextConfig's */
    .c = { GEMMA_OPTIONS, .K = 4, .head_norms = true, .norms_at = NORMS_AROUND, .score_width = 256,
           .local_theta = 10000 },
    .head_dim = 256, .rope_theta = 1000000, .pad_token = 0, .window_rule = WINDOWS_BUT_EVERY, .window_needed = true,
    .sliding_window = 4096, .window_pattern = 6,
};

/* transformers does not cap the scores of a Gemma 3, whatever its file says. */
static const struct config_key keys[] = {
    LATER_GEMMA_KEYS(KEY_BOTH_AS("attn_logit_softcapping", "null")),
    CONFIG_BOTH("rope_local_base_freq", KEY_POSITIVE, c.local_theta),
    CONFIG_TO("sliding_window_pattern", KEY_SIZE_OR_NULL, window_pattern),
    CONFIG_TO("_sliding_window_pattern", KEY_SIZE_OR_NULL, window_pattern),
    { .name = NULL },
};

const struct family family_gemma3 = {
    .name = "gemma3_text", .title = "a Gemma 3", .architecture = "Gemma3ForCausalLM", .without_head = "Gemma3TextModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = decoder_to_json,
    .naming = &gemma2_naming,
    .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_WINDOWS, HAS_SOME_WINDOWS, HAS_SCORE_WIDTH, HAS_LOGIT_CAP },
    .program = { { gemma_embedding, gemma2_block, gemma2_loss } },
};
