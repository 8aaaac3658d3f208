/* config_windows.c -- the windows of attention in config.json: one size, and which layers have it.
 *
 * "layer_types", where a file has it, has the kind of each layer.  Without it a Mistral's window is of all layers, a
 * Qwen's of those from max_window_layers on, and a SmolLM3's of those without rotary positions, if use_sliding_window
 * is true, a GPT-OSS's of the first, third, .., and a
 * Gemma's of all but each second or sliding_window_pattern-th.  config_decoder.c calls these functions.  ERR_FORMAT
 * names the key of windows that does not fit.
 */
#include "ref/model/config_json/config_json.h"
#include "ref/io/output.h"
#include <string.h>

static const char FULL[] = "full_attention", SLIDING[] = "sliding_attention";

static enum error_code read_types(struct windows *windows, const struct config_reading *reading, const char *path,
                                  struct error *err)
{
    const cJSON *type;
    int64_t layer = 0;
    if (!cJSON_IsArray(reading->layer_types) || cJSON_GetArraySize(reading->layer_types) != reading->c.L)
        return fail(err, ERR_FORMAT, "%s: layer_types must be a list of one word for each of %lld layers", path,
                    (long long)reading->c.L);
    cJSON_ArrayForEach(type, reading->layer_types) {
        const char *word = cJSON_IsString(type) ? type->valuestring : "";
        if (strcmp(word, FULL) != 0 && strcmp(word, SLIDING) != 0)
            return fail(err, ERR_FORMAT, "%s: layer_types has \"%.60s\"; Orrery has only \"%s\" and \"%s\"", path,
                        printable(word).text, FULL, SLIDING);
        if (word[0] == SLIDING[0]) windows_add(windows, layer, layer + 1);
        layer++;
    }
    return OK;
}

/* Say which layers have it, by the rule of the family. */
static enum error_code read_layers(struct windows *windows, const struct config_reading *reading, const char *path,
                                   struct error *err)
{
    const bool late = reading->window_rule == WINDOWS_LATE, unturned = reading->window_rule == WINDOWS_UNTURNED,
               flagged = late || unturned,
               used = reading->window_rule != WINDOWS_NEVER && reading->sliding_window > 0
                   && (!flagged || reading->use_sliding_window);
    struct windows rule = { 0 }, listed = { 0 };
    const int64_t every = reading->window_rule == WINDOWS_BUT_EVERY ? reading->window_pattern : 0;
    for (int64_t l = late ? reading->max_window_layers : 0; used && l < reading->c.L && l < WINDOW_LAYERS; l++)
        if (unturned ? layer_set_has(&reading->c.unturned, l) : every == 0 || (l + 1) % every != 0)
            windows_add(&rule, l, l + 1);
    if (reading->layer_types == NULL) return *windows = rule, OK;
    const enum error_code e = read_types(&listed, reading, path, err);
    if (e) return e;
    const bool same = memcmp(&listed, &rule, sizeof rule) == 0;
    if (!used && !same)
        return fail(err, ERR_FORMAT, "%s: layer_types has \"%s\", and %s", path, SLIDING,
                    flagged ? "use_sliding_window is not true, or sliding_window is null"
                         : reading->window_rule != WINDOWS_NEVER ? "sliding_window is null"
                                                         : "attention of this model_type has no windows");
    if (reading->window_rule == WINDOWS_ALL && !same)
        return fail(err, ERR_FORMAT, "%s: sliding_window is a number, and layer_types has \"%s\"; in this model_type "
                    "all layers have the window", path, FULL);
    return *windows = listed, OK;
}

enum error_code windows_from_json(struct config_reading *reading, const char *path, struct error *err)
{
    struct windows w = { 0 };
    if (reading->window_needed && reading->sliding_window == 0)
        return fail(err, ERR_FORMAT, "%s: sliding_window is null; a model of this model_type has a number, also if "
                    "layer_types has no \"sliding_attention\"", path);
    if (reading->window_needed && reading->window_pattern == 0)
        return fail(err, ERR_FORMAT, "%s: sliding_window_pattern is null; it must be a number, such as 6", path);
    if (reading->window_rule == WINDOWS_NEVER && reading->sliding_window > 0 && reading->sliding_window < reading->c.S)
        return fail(err, ERR_FORMAT, "%s: sliding_window is %lld, shorter than max_position_embeddings; attention of "
                    "this model_type has no windows", path, (long long)reading->sliding_window);
    const enum error_code e = read_layers(&w, reading, path, err);
    if (e) return e;
    reading->c.windows = w, reading->c.windows.size = reading->sliding_window;
    if (model_windowed_layers(&reading->c) == 0) reading->c.windows.size = 0;
    return OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool add_size(const struct model_config *config, cJSON *root)
{
    if (config->windows.size == 0) return cJSON_AddNullToObject(root, "sliding_window") != NULL;
    return cJSON_AddNumberToObject(root, "sliding_window", (double)config->windows.size) != NULL;
}

static bool add_types(const struct model_config *config, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "layer_types");
    bool ok = list != NULL;
    for (int64_t l = 0; l < config->L && ok; l++)
        ok = cJSON_AddItemToArray(list, cJSON_CreateString(model_window(config, l) ? SLIDING : FULL));
    return ok;
}

/* Older versions read the first layer of those with a window, and newer ones the list. */
static bool add_layers(const struct model_config *config, cJSON *root)
{
    const bool late = config->family->defaults->window_rule == WINDOWS_LATE;
    int64_t first = 0;
    while (first < config->L && model_window(config, first) == 0) first++;
    return add_types(config, root) && cJSON_AddTrueToObject(root, "use_sliding_window") && add_size(config, root) &&
           (!late || cJSON_AddNumberToObject(root, "max_window_layers", (double)first));
}

/* The pattern of all but each so many layers; 0: the layers have none. */
static int64_t pattern_of(const struct model_config *config)
{
    int64_t every = 1;
    while (every <= config->L && model_window(config, every - 1) > 0) every++;
    for (int64_t l = 0; l < config->L; l++)
        if ((model_window(config, l) > 0) != ((l + 1) % every != 0)) return 0;
    return every;
}

/* A size also where no layer has a window, which transformers asks for.  Older versions read the pattern. */
static bool add_pattern(const struct model_config *config, cJSON *root)
{
    const int64_t every = pattern_of(config);
    return cJSON_AddNumberToObject(root, "sliding_window",
                                   (double)(config->windows.size ? config->windows.size : config->S)) &&
           add_types(config, root) &&
           (!config_keys_have(config->family->keys, "sliding_window_pattern") || every == 0 ||
            cJSON_AddNumberToObject(root, "sliding_window_pattern", (double)every));
}

bool windows_to_json(const struct model_config *config, cJSON *root)
{
    switch (config->family->defaults->window_rule) {
    case WINDOWS_NEVER: break;
    case WINDOWS_ALL: return add_size(config, root);
    case WINDOWS_LATE: case WINDOWS_UNTURNED: return config->windows.size == 0 || add_layers(config, root);
    case WINDOWS_BUT_EVERY: return add_pattern(config, root);
    }
    return true;
}
