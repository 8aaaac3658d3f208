/* nanogpt.c -- the GPT of nanoGPT: a GPT-2 with the exact gelu whose biases are all there, those of norms too, or none;
 * its matrices are [out, in] in files.
 *
 * Its config.json has the keys of GPTConfig, beside a model_type of ours.  Sizes and an epsilon that are fixed in the
 * class are written where a model has others.
 *
 * ref/model/config_json/config_json.c reads and writes the file by this family's row.  A CONFIG_BOTH key is read and
 * written; a CONFIG_TO key is only read.  nanogpt_to_json writes the CONFIG_TO keys whose values differ from the class.
 * ref/model/config.c and verify/cases/models.c name the family, too.  A wrong file is ERR_FORMAT, from the reading of
 * keys or from nanogpt_finish.  nanogpt_to_json returns false without memory.
 *
 * Source  A. Karpathy, "nanoGPT", 2022, model.py
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

/* Fixed in the class. */
#define TIMES_WIDER 4                                   /* the feed-forward than the stream */
#define EPS 1e-5
#define INIT_STD 0.02

static const struct config_reading defaults = {         /* GPTConfig's */
    .c = { .activation = ACTIVATION_EXACT_GELU, .biases = BIASES_BLOCK, .tied = true, .eps = EPS,
           .init_std = INIT_STD },
    .attention_bias = true,
};

static const struct config_key keys[] = {
    CONFIG_BOTH("block_size", KEY_SIZE, c.S),
    CONFIG_BOTH("vocab_size", KEY_SIZE, c.V),
    CONFIG_BOTH("n_layer", KEY_SIZE, c.L),
    CONFIG_BOTH("n_head", KEY_SIZE, c.H),
    CONFIG_BOTH("n_embd", KEY_SIZE, c.D),
    CONFIG_BOTH("dropout", KEY_NUMBER, c.dropout_residual),
    CONFIG_BOTH("bias", KEY_FLAG, attention_bias),
    CONFIG_TO("n_inner", KEY_SIZE_OR_NULL, c.F),
    CONFIG_TO("layer_norm_epsilon", KEY_NUMBER, c.eps),
    { .name = NULL },
};

/* One number is the dropout of all places, one flag says whether there are biases. */
static enum error_code nanogpt_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                      struct error *err)
{
    struct model_config *c = &reading->c;
    if (c->F == 0) c->F = TIMES_WIDER * c->D;
    c->dropout_embedding = c->dropout_attention = c->dropout_residual;
    c->norms_unbiased = !reading->attention_bias;
    if (c->norms_unbiased) c->biases = BIASES_NONE;
    return gpt2_finish(reading, root, path, err);
}

static bool nanogpt_to_json(const struct model_config *config, cJSON *root)
{
    return (config->F == TIMES_WIDER * config->D || cJSON_AddNumberToObject(root, "n_inner", (double)config->F))
           && (config->eps == EPS || cJSON_AddNumberToObject(root, "layer_norm_epsilon", config->eps))
           && (config->init_std == INIT_STD || cJSON_AddNumberToObject(root, "initializer_range", config->init_std));
}

static const struct naming naming = {
    .in_files = "transformer.", .block = "h.%d.", .tokens = "wte", .positions = "wpe", .norm = "ln_f",
    .of_block = { GPT2_NAMES },
};

const struct family family_nanogpt = {
    .name = "nanogpt", .title = "a nanoGPT", .architecture = "GPT", .without_head = "GPT",
    .defaults = &defaults, .keys = keys, .finish = nanogpt_finish, .write = nanogpt_to_json, .naming = &naming,
    .may = { HAS_ATTENTION_BIASES, HAS_FEED_BIASES, HAS_NORMS_UNBIASED },
    .program = { { gpt2_embedding, gpt2_block, llama_loss } },
};
