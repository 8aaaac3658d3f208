/* replace.c -- the normalizer Replace: each match of a text or an expression becomes another text.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include <stdlib.h>
#include <string.h>

struct replacement { struct pattern *pattern; char *content; };

static enum error_code replace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct replacement), reading);
    struct replacement *replacement = *state;
    if (!e) e = step_keys(reading, object, "pattern content");
    if (!e) e = step_pattern(reading, object, &replacement->pattern);
    if (!e) e = step_text_copy(reading, object, "content", NULL, &replacement->content);
    /* The library repeats in later steps what such a match puts at the beginning, or it ends with a panic. */
    return e || !pattern_matches_nothing(replacement->pattern) ? e
           : step_refuse(reading, "pattern: an expression that matches where nothing stands");
}

static enum error_code replace_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                     struct error *err)
{
    const struct replacement *replacement = state;
    return pattern_replace(replacement->pattern, text, bytes, replacement->content, out, err);
}

/* The library counts the new text to the last character of the match. */
static enum error_code replace_first(void *state, const char *text, size_t bytes, size_t *first, struct error *err)
{
    const struct replacement *replacement = state;
    struct match match = { 0 };
    size_t made = 0, done = 0;
    enum error_code e;
    while (!(e = pattern_next(replacement->pattern, text, bytes, &match, err)) && match.found && match.end <= *first) {
        made += match.begin - done + strlen(replacement->content);
        done = match.end;
    }
    if (match.found && match.begin < *first) *first = match.begin;
    *first = made + *first - done;
    return e;
}

static void replace_close(void *state)
{
    struct replacement *replacement = state;
    pattern_close(replacement->pattern);
    free(replacement->content);
    free(replacement);
}

const struct normalizer_kind normalizer_replace = { { "Replace", replace_read, replace_close }, replace_apply,
                                                    replace_first };
