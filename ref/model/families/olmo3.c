/* olmo3.c -- OLMo 3: an OLMo 2 with windows in all layers but each fourth; their rotary positions have no scaling.
 *
 * Source  Team OLMo, "Olmo 3", arXiv:2512.13961, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* Olmo3Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .head_norms = true, .normed_together = true, .norms_at = NORMS_AFTER,
           .eps = 1e-5, .local_theta = 500000 },
    .rope_theta = 500000, .pad_token = 1, .window_rule = WINDOWS_BUT_EVERY, .window_needed = true,
    .sliding_window = 4096, .window_pattern = 4,
};

static const struct config_key keys[] = {
    DECODER_KEYS,
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token),
    { .name = NULL },
};

/* A theta beside the rotary positions is that of all layers. */
static enum error_code olmo3_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                    struct error *err)
{
    reading->c.local_theta = reading->rope_theta;
    return decoder_finish(reading, root, path, err);
}

/* Version 5 reads the theta of layers with a window from an object of their own. */
static bool write(const struct model_config *config, cJSON *root)
{
    cJSON *both, *full, *local = NULL;
    if (!decoder_to_json(config, root)) return false;
    const cJSON *scaling = cJSON_GetObjectItemCaseSensitive(root, "rope_scaling");
    both = cJSON_AddObjectToObject(root, "rope_parameters");
    full = scaling ? cJSON_Duplicate(scaling, true) : cJSON_CreateObject();
    return cJSON_AddItemToObject(both, "full_attention", full) &&
           (scaling || cJSON_AddStringToObject(full, "rope_type", "default")) &&
           config_add_real(full, "rope_theta", config->rotary.theta) &&
           (local = cJSON_AddObjectToObject(both, "sliding_attention")) != NULL &&
           cJSON_AddStringToObject(local, "rope_type", "default") &&
           config_add_real(local, "rope_theta", config->local_theta);
}

const struct family family_olmo3 = {
    .name = "olmo3", .title = "an OLMo 3", .architecture = "Olmo3ForCausalLM", .without_head = "Olmo3Model",
    .defaults = &defaults, .keys = keys, .finish = olmo3_finish, .write = write,
    .naming = &olmo2_naming, .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_WINDOWS, HAS_SOME_WINDOWS },
    .program = { { llama_embedding, olmo2_block, llama_loss } },
};
