/* around.c -- reads and puts the special tokens around a text.  The processors in bert.c and roberta.c call it.
 * Errors: ERR_FORMAT of a wrong file, ERR_MEMORY. */
#include "ref/text/processors/around.h"
#include <stdio.h>

/* The library takes the id as it is, also if the name is another token's. */
static enum error_code around_read_id(const struct step_reading *reading, const cJSON *object, const char *key,
                                      int32_t *out)
{
    char what[120];
    int64_t id;
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(object, key);
    if (cJSON_GetArraySize(pair) == 2 && cJSON_IsString(cJSON_GetArrayItem(pair, 0)) &&
        json_whole(cJSON_GetArrayItem(pair, 1), &id) && id >= 0 && id < reading->vocabulary)
        return *out = (int32_t)id, OK;
    snprintf(what, sizeof what, "%s: must be a list of a name and an id below %d", key, (int)reading->vocabulary);
    return step_wrong(reading, what);
}

enum error_code around_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct around), reading);
    struct around *around = *state;
    if (!e) e = around_read_id(reading, object, "cls", &around->before);
    return e ? e : around_read_id(reading, object, "sep", &around->behind);
}

bool around_apply(const void *state, const struct token_ids *in, bool special, struct token_ids *out)
{
    const struct around *around = state;
    return (!special || token_ids_add(out, around->before)) && token_ids_append(out, in->id, in->count) &&
           (!special || token_ids_add(out, around->behind));
}

int64_t around_added(const void *state)
{
    (void)state;
    return 2;
}
