/* step.c -- reads the parts of a tokenizer.json that consist of steps.
 *
 * tokenizer.c calls steps_read; the readers in normalizers/, splitters/, models/, processors/ and decoders/ call the
 * rest.  Errors are ERR_FORMAT and ERR_MEMORY.
 */
#include "ref/text/step.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* "normalizer: Replace: " before what is wrong; between steps the part alone. */
static enum error_code step_fail(const struct step_reading *reading, const char *what, const char *end)
{
    const char *kind = reading->kind;
    return fail(reading->err, ERR_FORMAT, "%s: %s: %s%s%s%s", reading->path, reading->part, kind ? kind : "",
                kind ? ": " : "", what, end);
}

enum error_code step_refuse(const struct step_reading *reading, const char *what)
{
    return step_fail(reading, what, " is not supported");
}

enum error_code step_wrong(const struct step_reading *reading, const char *what)
{
    return step_fail(reading, what, "");
}

enum error_code step_no_memory(const struct step_reading *reading)
{
    return fail(reading->err, ERR_MEMORY, "%s: no memory", reading->path);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum error_code step_state(void **state, size_t bytes, const struct step_reading *reading)
{
    return (*state = calloc(1, bytes)) ? OK : step_no_memory(reading);
}

/* Whether the key is one of the words. */
static bool step_has_word(const char *words, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = words; n && (at = strstr(at, key)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

enum error_code step_keys(const struct step_reading *reading, const cJSON *object, const char *keys)
{
    char what[80];
    const cJSON *one;
    cJSON_ArrayForEach(one, object) {
        if (strcmp(one->string, "type") == 0 || step_has_word(keys, one->string)) continue;
        snprintf(what, sizeof what, "the key %s", one->string);
        return step_refuse(reading, what);
    }
    return OK;
}

enum error_code step_read_nothing(void **state, const struct step_reading *reading, const cJSON *object)
{
    (void)state;
    return step_keys(reading, object, "");
}

/* The value of a key; NULL if it is missing or null. */
static const cJSON *step_value(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(value) ? NULL : value;
}

enum error_code step_text(const struct step_reading *reading, const cJSON *object, const char *key, const char *usual,
                          const char **out)
{
    char what[80];
    const cJSON *value = step_value(object, key);
    *out = value ? cJSON_GetStringValue(value) : usual;
    if (*out) return OK;
    snprintf(what, sizeof what, "%s: must be a text", key);
    return step_wrong(reading, what);
}

enum error_code step_text_copy(const struct step_reading *reading, const cJSON *object, const char *key,
                               const char *usual, char **out)
{
    const char *text;
    const enum error_code e = step_text(reading, object, key, usual, &text);
    if (e) return e;
    if ((*out = malloc(strlen(text) + 1)) == NULL) return step_no_memory(reading);
    strcpy(*out, text);
    return OK;
}

enum error_code step_flag(const struct step_reading *reading, const cJSON *object, const char *key, bool usual,
                          bool *out)
{
    char what[80];
    const cJSON *value = step_value(object, key);
    *out = value ? cJSON_IsTrue(value) : usual;
    if (value == NULL || cJSON_IsBool(value)) return OK;
    snprintf(what, sizeof what, "%s: must be true or false", key);
    return step_wrong(reading, what);
}

enum error_code step_count(const struct step_reading *reading, const cJSON *object, const char *key, int64_t most,
                           int64_t usual, int64_t *out)
{
    char what[120];
    const cJSON *value = step_value(object, key);
    *out = usual;
    if (value == NULL && usual >= 0) return OK;
    if (value && json_whole(value, out) && *out >= 0 && *out <= most) return OK;
    snprintf(what, sizeof what, "%s: must be a whole number from 0 to %lld", key, (long long)most);
    return step_wrong(reading, what);
}

enum error_code step_pattern(const struct step_reading *reading, const cJSON *object, struct pattern **out)
{
    char where[400];
    const cJSON *pattern = step_value(object, "pattern"), *inside = pattern ? pattern->child : NULL;
    const char *text = inside ? cJSON_GetStringValue(inside) : NULL, *key = inside ? inside->string : NULL;
    const bool plain = key && strcmp(key, "String") == 0, expression = key && strcmp(key, "Regex") == 0;
    if (text == NULL || inside->next || (!plain && !expression))
        return step_wrong(reading, "pattern: must be { \"String\": TEXT } or { \"Regex\": EXPRESSION }");
    snprintf(where, sizeof where, "%s: %s: %s", reading->path, reading->part, reading->kind);
    return pattern_open(out, text, plain, where, reading->err);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static enum error_code steps_read_one(struct steps *steps, const struct step_room *room, struct step_reading *reading,
                                      const cJSON *object);

/* Sequences in sequences are as their steps one after the other. */
static enum error_code steps_read_sequence(struct steps *steps, const struct step_room *room,
                                           struct step_reading *reading, const cJSON *object)
{
    const cJSON *one, *list = cJSON_GetObjectItemCaseSensitive(object, room->list);
    char what[80];
    reading->kind = "Sequence";
    enum error_code e = step_keys(reading, object, room->list);
    if (!e && !cJSON_IsArray(list)) {
        snprintf(what, sizeof what, "%s: must be a list", room->list);
        e = step_wrong(reading, what);
    }
    if (!e) cJSON_ArrayForEach(one, list) if ((e = steps_read_one(steps, room, reading, one))) return e;
    return e;
}

static enum error_code steps_read_one(struct steps *steps, const struct step_room *room, struct step_reading *reading,
                                      const cJSON *object)
{
    reading->kind = NULL;
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "type"));
    if (!cJSON_IsObject(object) || type == NULL) return step_wrong(reading, "must be an object with a type");
    if (strcmp(type, "Sequence") == 0) return steps_read_sequence(steps, room, reading, object);
    const struct step_kind *const *kind = room->kind;
    while (*kind && strcmp((*kind)->name, type) != 0) kind++;
    if (*kind == NULL) return step_refuse(reading, type);
    if (steps->count == STEPS_MOST) return step_refuse(reading, "so long a sequence");
    struct step *step = &steps->step[steps->count++];
    *step = (struct step){ .kind = *kind };
    reading->kind = type;
    const enum error_code e = (*kind)->read(&step->state, reading, object);
    reading->kind = NULL;
    return e;
}

enum error_code steps_read(struct steps *steps, const struct step_room *room, struct step_reading *reading,
                           const cJSON *root)
{
    const cJSON *object = step_value(root, room->key);
    reading->part = room->key;
    return object ? steps_read_one(steps, room, reading, object) : OK;
}

void steps_close(struct steps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        const struct step step = steps->step[i];
        if (step.state == NULL) continue;
        if (step.kind->close) step.kind->close(step.state);
        else free(step.state);
    }
    steps->count = 0;
}
