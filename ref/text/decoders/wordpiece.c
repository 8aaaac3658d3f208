/* wordpiece.c -- the decoder WordPiece: a text with a prefix continues the text before it; before others comes a
 * blank.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include <stdlib.h>
#include <string.h>

struct wordpiece { char *prefix; bool clean_up; struct text_buffer text; };

static enum error_code wordpiece_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct wordpiece), reading);
    struct wordpiece *wordpiece = *state;
    if (!e) e = step_keys(reading, object, "prefix cleanup");
    if (!e) e = step_text_copy(reading, object, "prefix", NULL, &wordpiece->prefix);
    return e ? e : step_flag(reading, object, "cleanup", true, &wordpiece->clean_up);
}

static enum error_code wordpiece_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                       struct error *err)
{
    struct wordpiece *wordpiece = state;
    const size_t prefix = strlen(wordpiece->prefix);
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        const bool goes_on = i && bytes >= prefix && memcmp(text, wordpiece->prefix, prefix) == 0;
        if (goes_on) text += prefix, bytes -= prefix;
        wordpiece->text.bytes = 0;
        if (i && !goes_on) e = text_buffer_add(&wordpiece->text, " ", 1, err);
        if (!e) e = text_buffer_add(&wordpiece->text, text, bytes, err);
        if (!e) e = wordpiece->clean_up
            ? token_text_clean_up(wordpiece->text.text, wordpiece->text.bytes, &out->text, err)
            : text_buffer_add(&out->text, wordpiece->text.text, wordpiece->text.bytes, err);
        if (!e) e = token_texts_end(out, err);
    }
    return e;
}

static void wordpiece_close(void *state)
{
    struct wordpiece *wordpiece = state;
    free(wordpiece->prefix);
    text_buffer_free(&wordpiece->text);
    free(wordpiece);
}

const struct decoder_kind decoder_wordpiece = { { "WordPiece", wordpiece_read, wordpiece_close }, wordpiece_apply };
