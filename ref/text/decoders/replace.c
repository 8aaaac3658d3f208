/* replace.c -- the decoder Replace: in each text, each match of a text or an expression becomes another text.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include "ref/text/replacement.h"

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

const struct decoder_kind decoder_replace = { { "Replace", replacement_read, replacement_close }, replace_apply };
