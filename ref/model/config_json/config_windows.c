/* config_windows.c -- the windows of attention in config.json: one size, and which layers have it.
 *
 * "layer_types", where a file has it, has the kind of each layer.  Without it a Mistral's window is of all layers, a
 * Qwen's of those from max_window_layers on, if use_sliding_window is true, a GPT-OSS's of the first, third, .., and a
 * Gemma's of all but each second or sliding_window_pattern-th.
 */
#include "ref/model/config_json/config_json.h"
#include "ref/io/output.h"
#include <string.h>

static const char FULL[] = "full_attention", SLIDING[] = "sliding_attention";

static enum error_code read_types(struct windows *w, const struct config_reading *f, const char *path,
                                  struct error *err)
{
    const cJSON *type;
    int64_t layer = 0;
    if (!cJSON_IsArray(f->layer_types) || cJSON_GetArraySize(f->layer_types) != f->c.L)
        return fail(err, ERR_FORMAT, "%s: layer_types must be a list of one word for each of %lld layers", path,
                    (long long)f->c.L);
    cJSON_ArrayForEach(type, f->layer_types) {
        const char *word = cJSON_IsString(type) ? type->valuestring : "";
        if (strcmp(word, FULL) != 0 && strcmp(word, SLIDING) != 0)
            return fail(err, ERR_FORMAT, "%s: layer_types has \"%.60s\"; Orrery has only \"%s\" and \"%s\"", path,
                        printable(word).text, FULL, SLIDING);
        if (word[0] == SLIDING[0]) windows_add(w, layer, layer + 1);
        layer++;
    }
    return OK;
}

/* Which layers have it, by the rule of the family. */
static enum error_code read_layers(struct windows *w, const struct config_reading *f, const char *path,
                                   struct error *err)
{
    const bool late = f->window_rule == WINDOWS_LATE,
               used = f->window_rule != WINDOWS_NEVER && f->sliding_window > 0 && (!late || f->use_sliding_window);
    struct windows rule = { 0 }, listed = { 0 };
    const int64_t every = f->window_rule == WINDOWS_BUT_EVERY ? f->window_pattern : 0;
    for (int64_t l = late ? f->max_window_layers : 0; used && l < f->c.L && l < WINDOW_LAYERS; l++)
        if (every == 0 || (l + 1) % every != 0) windows_add(&rule, l, l + 1);
    if (f->layer_types == NULL) return *w = rule, OK;
    const enum error_code e = read_types(&listed, f, path, err);
    if (e) return e;
    const bool same = memcmp(&listed, &rule, sizeof rule) == 0;
    if (!used && !same)
        return fail(err, ERR_FORMAT, "%s: layer_types has \"%s\", and %s", path, SLIDING,
                    late ? "use_sliding_window is not true, or sliding_window is null"
                         : f->window_rule != WINDOWS_NEVER ? "sliding_window is null"
                                                         : "attention of this model_type has no windows");
    if (f->window_rule == WINDOWS_ALL && !same)
        return fail(err, ERR_FORMAT, "%s: sliding_window is a number, and layer_types has \"%s\"; in this model_type "
                    "all layers have the window", path, FULL);
    return *w = listed, OK;
}

enum error_code windows_from_json(struct config_reading *f, const char *path, struct error *err)
{
    struct windows w = { 0 };
    if (f->window_rule == WINDOWS_NEVER && f->sliding_window > 0 && f->sliding_window < f->c.S)
        return fail(err, ERR_FORMAT, "%s: sliding_window is %lld, shorter than max_position_embeddings; attention of "
                    "this model_type has no windows", path, (long long)f->sliding_window);
    const enum error_code e = read_layers(&w, f, path, err);
    if (e) return e;
    f->c.windows = w, f->c.windows.size = f->sliding_window;
    if (model_windowed_layers(&f->c) == 0) f->c.windows.size = 0;
    return OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool add_size(const struct model_config *c, cJSON *root)
{
    if (c->windows.size == 0) return cJSON_AddNullToObject(root, "sliding_window") != NULL;
    return cJSON_AddNumberToObject(root, "sliding_window", (double)c->windows.size) != NULL;
}

static bool add_types(const struct model_config *c, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "layer_types");
    bool ok = list != NULL;
    for (int64_t l = 0; l < c->L && ok; l++)
        ok = cJSON_AddItemToArray(list, cJSON_CreateString(model_window(c, l) ? SLIDING : FULL));
    return ok;
}

/* Older versions read the first layer of those with a window, and newer ones the list. */
static bool add_layers(const struct model_config *c, cJSON *root)
{
    int64_t first = 0;
    while (first < c->L && model_window(c, first) == 0) first++;
    return add_types(c, root) && cJSON_AddTrueToObject(root, "use_sliding_window") && add_size(c, root) &&
           cJSON_AddNumberToObject(root, "max_window_layers", (double)first);
}

/* The pattern of all but each so many layers; 0: the layers have none. */
static int64_t pattern_of(const struct model_config *c)
{
    int64_t every = 1;
    while (every <= c->L && model_window(c, every - 1) > 0) every++;
    for (int64_t l = 0; l < c->L; l++)
        if ((model_window(c, l) > 0) != ((l + 1) % every != 0)) return 0;
    return every;
}

/* A size also where no layer has a window, which transformers asks for.  Older versions read the pattern. */
static bool add_pattern(const struct model_config *c, cJSON *root)
{
    const int64_t every = pattern_of(c);
    return cJSON_AddNumberToObject(root, "sliding_window", (double)(c->windows.size ? c->windows.size : c->S)) &&
           add_types(c, root) &&
           (c->local_theta == 0 || every == 0 ||
            cJSON_AddNumberToObject(root, "sliding_window_pattern", (double)every));
}

bool windows_to_json(const struct model_config *c, cJSON *root)
{
    switch (model_family(c)) {
    case FAMILY_MISTRAL: case FAMILY_PHI3: case FAMILY_MIXTRAL: return add_size(c, root);
    case FAMILY_QWEN2: case FAMILY_QWEN3: return c->windows.size == 0 || add_layers(c, root);
    case FAMILY_GPT_OSS: case FAMILY_GEMMA2: case FAMILY_GEMMA3: return add_pattern(c, root);
    default: return true;
    }
}
