/* template.c -- the processor TemplateProcessing: a list of special tokens and of places for the text.
 *
 * kinds.def lists it.  Only `single` counts, because a text comes alone here; `pair` and numbers of types change no
 * tokens of a single text.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/processors/processor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_TEXT = -1 };            /* in `part`: the text itself */
enum { TEMPLATE_MOST = 64 };            /* parts, each of which may be the text */

/* The parts: ids of special tokens, and TEMPLATE_TEXT. */
struct template { struct token_ids part; };

static int64_t template_parts(const struct template *template) { return template->part.count; }

/* All ids of a special token. */
static enum error_code template_read_token(struct template *template, const struct step_reading *reading,
                                           const cJSON *tokens, const cJSON *piece)
{
    const char *name;
    char what[120];
    int64_t n;
    const cJSON *id;
    const enum error_code e = step_text(reading, piece, "id", NULL, &name);
    if (e) return e;
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(tokens, name), "ids");
    snprintf(what, sizeof what, "special_tokens: %s: must have ids below %d", name, (int)reading->vocabulary);
    if (!cJSON_IsArray(ids)) return step_wrong(reading, what);
    cJSON_ArrayForEach(id, ids) {
        if (!json_whole(id, &n) || n < 0 || n >= reading->vocabulary) return step_wrong(reading, what);
        if (!token_ids_add(&template->part, (int32_t)n)) return step_no_memory(reading);
    }
    return OK;
}

/* The text, which is A; B would be the second text of a pair. */
static enum error_code template_read_text(struct template *template, const struct step_reading *reading,
                                          const cJSON *piece)
{
    const char *name;
    const enum error_code e = step_text(reading, piece, "id", NULL, &name);
    if (e) return e;
    if (strcmp(name, "A") != 0) return step_wrong(reading, "single: has another text than A");
    return token_ids_add(&template->part, TEMPLATE_TEXT) ? OK : step_no_memory(reading);
}

static enum error_code template_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const cJSON *one, *single = cJSON_GetObjectItemCaseSensitive(object, "single");
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(object, "special_tokens");
    enum error_code e = step_state(state, sizeof(struct template), reading);
    /* Cohere's file has the keys of ByteLevel, too, which the library passes over. */
    if (!e) e = step_keys(reading, object, "single pair special_tokens add_prefix_space trim_offsets use_regex");
    if (!e && !cJSON_IsArray(single)) e = step_wrong(reading, "single: must be a list");
    if (e) return e;
    cJSON_ArrayForEach(one, single) {
        if (template_parts(*state) >= TEMPLATE_MOST) return step_refuse(reading, "single: more than 64 parts");
        const cJSON *token = cJSON_GetObjectItemCaseSensitive(one, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(one, "Sequence");
        if (!token == !text) return step_wrong(reading, "single: its parts are a SpecialToken or a Sequence each");
        e = token ? template_read_token(*state, reading, tokens, token) : template_read_text(*state, reading, text);
        if (e) return e;
    }
    return OK;
}

static bool template_apply(const void *state, const struct token_ids *in, bool special, struct token_ids *out)
{
    const struct template *template = state;
    bool ok = true;
    for (int64_t i = 0; ok && i < template->part.count; i++) {
        const int32_t id = template->part.id[i];
        if (id == TEMPLATE_TEXT) ok = token_ids_append(out, in->id, in->count);
        else if (special) ok = token_ids_add(out, id);
    }
    return ok;
}

static int64_t template_added(const void *state)
{
    const struct template *template = state;
    int64_t added = 0;
    for (int64_t i = 0; i < template->part.count; i++) added += template->part.id[i] != TEMPLATE_TEXT;
    return added;
}

static void template_close(void *state)
{
    struct template *template = state;
    token_ids_free(&template->part);
    free(template);
}

const struct processor_kind processor_template = { { "TemplateProcessing", template_read, template_close },
                                                   template_apply, template_added };
