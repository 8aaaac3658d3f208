/* limits.c -- reads "truncation" and "padding" of a tokenizer.json, cuts and pads.  tokenizer.c calls these functions.
 * Errors: ERR_FORMAT of a wrong file, and of a text that may not be cut. */
#include "ref/text/limits.h"
#include <stdio.h>
#include <string.h>

enum { PADDED_MOST = 1 << 24 };         /* tokens that a text is padded to at most: 64 MiB of ids */

/* The index of a key's text among names; the first if the key is missing. */
static enum error_code limits_choice(const struct step_reading *reading, const cJSON *object, const char *key,
                                     const char *const *names, int *out)
{
    const char *text;
    char what[120];
    const enum error_code e = step_text(reading, object, key, names[0], &text);
    if (e) return e;
    for (*out = 0; names[*out]; ++*out)
        if (strcmp(names[*out], text) == 0) return OK;
    snprintf(what, sizeof what, "%s: %s", key, text);
    return step_refuse(reading, what);
}

static enum error_code limits_read_truncation(struct text_limits *limits, const struct step_reading *reading,
                                              const cJSON *object, int64_t added)
{
    static const char *const directions[] = { "Right", "Left", NULL };
    static const char *const strategies[] = { "LongestFirst", "OnlyFirst", "OnlySecond", NULL };
    int direction = 0, strategy = 0;
    enum error_code e = step_keys(reading, object, "direction max_length strategy stride");
    if (!e) e = limits_choice(reading, object, "direction", directions, &direction);
    if (!e) e = limits_choice(reading, object, "strategy", strategies, &strategy);
    if (!e) e = step_count(reading, object, "max_length", INT64_C(1) << 52, -1, &limits->most);
    if (!e) e = step_count(reading, object, "stride", INT64_C(1) << 52, 0, &limits->stride);
    limits->truncates = true, limits->cut_left = direction == 1, limits->second_only = strategy == 2;
    if (!e && limits->most < added) e = step_wrong(reading, "max_length: leaves no room for special tokens");
    if (!e && limits->stride > 0 && limits->stride >= limits->most - added)
        e = step_wrong(reading, "stride: must be below max_length without special tokens");
    return e;
}

/* "BatchLongest" pads to the longest of several texts; a text alone is that. */
static enum error_code limits_read_strategy(struct text_limits *limits, const struct step_reading *reading,
                                            const cJSON *object)
{
    const cJSON *strategy = cJSON_GetObjectItemCaseSensitive(object, "strategy");
    const char *text = cJSON_GetStringValue(strategy);
    limits->least = -1;
    if (text && strcmp(text, "BatchLongest") == 0) return OK;
    if (cJSON_IsObject(strategy)) return step_count(reading, strategy, "Fixed", PADDED_MOST, -1, &limits->least);
    return step_wrong(reading, "strategy: must be \"BatchLongest\" or { \"Fixed\": N }");
}

static enum error_code limits_read_padding(struct text_limits *limits, const struct step_reading *reading,
                                           const cJSON *object)
{
    static const char *const directions[] = { "Right", "Left", NULL };
    int direction = 0;
    int64_t pad = 0;
    enum error_code e = step_keys(reading, object,
                                  "strategy direction pad_to_multiple_of pad_id pad_type_id pad_token");
    if (!e) e = limits_read_strategy(limits, reading, object);
    if (!e) e = limits_choice(reading, object, "direction", directions, &direction);
    if (!e) e = step_count(reading, object, "pad_to_multiple_of", PADDED_MOST, 0, &limits->multiple);
    if (!e) e = step_count(reading, object, "pad_id", reading->vocabulary - 1, -1, &pad);
    limits->pads = true, limits->pad_left = direction == 1, limits->pad = (int32_t)pad;
    return e;
}

enum error_code text_limits_read(struct text_limits *text_limits, struct step_reading *reading, const cJSON *root,
                                 int64_t added)
{
    const cJSON *truncation = cJSON_GetObjectItemCaseSensitive(root, "truncation");
    const cJSON *padding = cJSON_GetObjectItemCaseSensitive(root, "padding");
    enum error_code e = OK;
    reading->kind = NULL, reading->part = "truncation";
    if (json_has(root, "truncation")) e = cJSON_IsObject(truncation)
        ? limits_read_truncation(text_limits, reading, truncation, added) : step_wrong(reading, "must be an object");
    reading->part = "padding";
    if (!e && json_has(root, "padding")) e = cJSON_IsObject(padding)
        ? limits_read_padding(text_limits, reading, padding) : step_wrong(reading, "must be an object");
    return e;
}

enum error_code text_limits_cut(const struct text_limits *text_limits, struct token_ids *token_ids, int64_t added,
                                struct error *err)
{
    const int64_t most = text_limits->most - added, over = token_ids->count - most;
    if (!text_limits->truncates || over <= 0) return OK;
    if (text_limits->second_only && most > 0)
        return fail(err, ERR_FORMAT, "truncation: a text of %lld tokens is too long, and OnlySecond does not let cut "
                    "it", (long long)token_ids->count);
    if (text_limits->cut_left)
        memmove(token_ids->id, token_ids->id + over, (size_t)most * sizeof *token_ids->id);
    token_ids->count = most;
    return OK;
}

bool text_limits_pad(const struct text_limits *text_limits, struct token_ids *token_ids)
{
    const int64_t had = token_ids->count, multiple = text_limits->multiple;
    int64_t want = text_limits->least >= 0 ? text_limits->least : had;
    if (!text_limits->pads) return true;
    if (multiple > 0 && want % multiple > 0) want += multiple - want % multiple;
    while (token_ids->count < want)
        if (!token_ids_add(token_ids, text_limits->pad)) return false;
    if (!text_limits->pad_left || want <= had) return true;
    memmove(token_ids->id + (want - had), token_ids->id, (size_t)had * sizeof *token_ids->id);
    for (int64_t i = 0; i < want - had; i++) token_ids->id[i] = text_limits->pad;
    return true;
}
