/* replace.c -- the decoder Replace: in each text, each match of a text or an expression becomes another text.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include <stdlib.h>

struct replacement { struct pattern *pattern; char *content; };

static enum error_code replace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct replacement), reading);
    struct replacement *replacement = *state;
    if (!e) e = step_keys(reading, object, "pattern content");
    if (!e) e = step_pattern(reading, object, &replacement->pattern);
    return e ? e : step_text_copy(reading, object, "content", NULL, &replacement->content);
}

static enum error_code replace_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                     struct error *err)
{
    const struct replacement *replacement = state;
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        e = pattern_replace(replacement->pattern, text, bytes, replacement->content, &out->text, err);
        if (!e) e = token_texts_end(out, err);
    }
    return e;
}

static void replace_close(void *state)
{
    struct replacement *replacement = state;
    pattern_close(replacement->pattern);
    free(replacement->content);
    free(replacement);
}

const struct decoder_kind decoder_replace = { { "Replace", replace_read, replace_close }, replace_apply };
