/* smollm3.c -- SmolLM3: a Llama some of whose layers have no rotary positions; layers may have windows.
 *
 * Source  Hugging Face, "SmolLM3: smol, multilingual, long-context reasoner", 2025, as transformers has it
 * Called  families.def lists the family; config_json.c finds a family by the model_type of a file.  Errors:
 *         ERR_FORMAT with the key.
 */
#include "ref/model/families/shared.h"

static const struct config_reading defaults = {         /* SmolLM3Config's */
    .c = { RMS_DECODER, .mlp = MLP_SWIGLU, .tied = true, .eps = 1e-6, .K = 4 },
    .rope_theta = 2000000, .pad_token = 128004, .window_rule = WINDOWS_UNTURNED, .unturned_interval = 4,
};

/* Released files also have the first layer with a window of a Qwen2, which the class does not read. */
static const struct config_key keys[] = {
    DECODER_KEYS,
    CONFIG_TO("attention_bias", KEY_FLAG, attention_bias),
    CONFIG_TO("mlp_bias", KEY_FLAG, mlp_bias),
    CONFIG_TO("use_sliding_window", KEY_FLAG, use_sliding_window),
    CONFIG_TO("sliding_window", KEY_SIZE_OR_NULL, sliding_window),
    CONFIG_TO("no_rope_layers", KEY_LIST, turned_layers),
    CONFIG_TO("no_rope_layer_interval", KEY_SIZE_OR_NULL, unturned_interval),
    CONFIG_BOTH("pad_token_id", KEY_TOKEN, pad_token),
    KEY_LEFT("max_window_layers"),
    { .name = NULL },
};

/* Without a list each so many-th layer has no positions; in the list 1 is a layer that has them. */
static enum error_code read_layers(struct config_reading *reading, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    const cJSON *layer;
    int64_t l = 0;
    if (reading->turned_layers && cJSON_GetArraySize(reading->turned_layers) != c->L)
        return fail(err, ERR_FORMAT, "%s: no_rope_layers must be a list of 0 or 1 for each of %lld layers", path,
                    (long long)c->L);
    if (reading->turned_layers == NULL && reading->unturned_interval == 0)
        return fail(err, ERR_FORMAT, "%s: no_rope_layer_interval is null; without no_rope_layers it must be a number",
                    path);
    cJSON_ArrayForEach(layer, reading->turned_layers) {
        const double turns = cJSON_IsNumber(layer) ? layer->valuedouble : -1;
        if (turns != 0 && turns != 1)
            return fail(err, ERR_FORMAT, "%s: no_rope_layers has something else than 0 and 1, for layer %lld", path,
                        (long long)l);
        if (turns == 0) layer_set_add(&c->unturned, l);
        l++;
    }
    for (l = 0; l < c->L && reading->turned_layers == NULL; l++)
        if ((l + 1) % reading->unturned_interval == 0) layer_set_add(&c->unturned, l);
    return OK;
}

static enum error_code smollm3_finish(struct config_reading *reading, const cJSON *root, const char *path,
                                      struct error *err)
{
    const enum error_code e = read_layers(reading, path, err);
    return e ? e : decoder_finish(reading, root, path, err);
}

static bool smollm3_to_json(const struct model_config *config, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "no_rope_layers");
    bool ok = list != NULL;
    for (int64_t l = 0; l < config->L && ok; l++)
        ok = cJSON_AddItemToArray(list, cJSON_CreateNumber(model_turns(config, l)));
    return ok && decoder_to_json(config, root);
}

const struct family family_smollm3 = {
    .name = "smollm3", .title = "a SmolLM3", .architecture = "SmolLM3ForCausalLM", .without_head = "SmolLM3Model",
    .defaults = &defaults, .keys = keys, .finish = smollm3_finish, .write = smollm3_to_json, .naming = &llama_naming,
    .may = { HAS_FEWER_KEYS, HAS_ATTENTION_BIASES, HAS_FEED_BIASES, HAS_UNTURNED, HAS_WINDOWS, HAS_SOME_WINDOWS },
    .program = { { llama_embedding, llama_block, llama_loss } },
};
