/* granite.c -- Granite: a Llama that multiplies embeddings, scores of attention and what its branches give, and divides
 * logits.
 *
 * Source  Granite Team, IBM, "Granite 3.0 language models", 2024, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"
#include <math.h>

static const struct config_reading defaults = {         /* GraniteConfig's: scores are not divided by a root */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .eps = 1e-6,
           .multipliers = { .embedding = 1, .residual = 1, .scores = 1, .logit_divisor = 1 } },
    .rope_theta = 10000, .pad_token = NO_TOKEN,
};

static const struct config_key keys[] = {
    LLAMA_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("mlp_bias", KEY_FLAG, mlp_bias),
    CONFIG_TO("embedding_multiplier", KEY_POSITIVE, c.multipliers.embedding),
    CONFIG_TO("residual_multiplier", KEY_POSITIVE, c.multipliers.residual),
    CONFIG_TO("attention_multiplier", KEY_POSITIVE, c.multipliers.scores),
    CONFIG_TO("logits_scaling", KEY_POSITIVE, c.multipliers.logit_divisor),
    { .name = NULL },
};

/* A factor that a model has not is written as the number that changes nothing. */
static bool granite_to_json(const struct model_config *config, cJSON *root)
{
    const struct multipliers *m = &config->multipliers;
    const double scores = m->scores > 0 ? m->scores : 1 / sqrt((double)config->A);
    return decoder_to_json(config, root)
           && config_add_real(root, "embedding_multiplier", m->embedding > 0 ? m->embedding : 1)
           && config_add_real(root, "residual_multiplier", m->residual > 0 ? m->residual : 1)
           && config_add_real(root, "attention_multiplier", scores)
           && config_add_real(root, "logits_scaling", m->logit_divisor > 0 ? m->logit_divisor : 1);
}

const struct family family_granite = {
    .name = "granite", .title = "a Granite", .architecture = "GraniteForCausalLM", .without_head = "GraniteModel",
    .defaults = &defaults, .keys = keys, .finish = decoder_finish, .write = granite_to_json,
    .naming = &llama_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_FEED_BIASES },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
