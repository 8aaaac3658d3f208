/* model.c -- the list of models, and which of them a file has.  tokenizer.c calls model_read.  Errors are ERR_FORMAT
 * and ERR_MEMORY. */
#include "ref/text/models/model.h"
#include <string.h>

static const struct model_kind *const kinds[] = {
#define MODEL(symbol) &model_##symbol,
#include "ref/text/kinds.def"
    NULL
};

/* Older files have no type, and the library goes by their keys. */
static const char *model_of_keys(const cJSON *object)
{
    if (json_has(object, "merges")) return "BPE";
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(object, "vocab"))) return "Unigram";
    return json_has(object, "max_input_chars_per_word") ? "WordPiece" : json_has(object, "vocab") ? "WordLevel" : "BPE";
}

enum error_code model_read(struct step *model, struct step_reading *reading, const cJSON *root)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(root, "model");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    const char *name = type ? cJSON_GetStringValue(type) : model_of_keys(object);
    reading->part = "model";
    reading->kind = NULL;
    if (!cJSON_IsObject(object)) return step_wrong(reading, "must be an object");
    if (name == NULL) return step_wrong(reading, "type: must be a text");
    for (const struct model_kind *const *kind = kinds; *kind; kind++) {
        if (strcmp((*kind)->step.name, name) != 0) continue;
        model->kind = &(*kind)->step;
        reading->kind = name;
        const enum error_code e = model->kind->read(&model->state, reading, object);
        reading->kind = NULL;
        return e;
    }
    return step_refuse(reading, name);
}
