/* replace.c -- the normalizer Replace: each match of a text or an expression becomes another text.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/replacement.h"
#include <string.h>

static enum error_code replace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const enum error_code e = replacement_read(state, reading, object);
    /* The library repeats in later steps what such a match puts at the beginning, or it ends with a panic. */
    return e || !pattern_matches_nothing(((struct replacement *)*state)->pattern) ? e
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

const struct normalizer_kind normalizer_replace = { { "Replace", replace_read, replacement_close }, replace_apply,
                                                    replace_first };
