/* ctc.c -- the decoder CTC: of equal texts in a row one counts, a text for padding is left out, and a sign between
 * words becomes a blank.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include <stdlib.h>
#include <string.h>

struct ctc {
    char *pad, *delimiter;              /* the text for padding; the sign between words */
    bool clean_up;                      /* clean up, and replace the sign */
    struct text_buffer bare, clean;     /* a text without padding; cleaned up */
};

/* The library puts blanks between all characters for an empty sign, which nobody means. */
static enum error_code ctc_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct ctc), reading);
    struct ctc *ctc = *state;
    if (!e) e = step_keys(reading, object, "pad_token word_delimiter_token cleanup");
    if (!e) e = step_text_copy(reading, object, "pad_token", NULL, &ctc->pad);
    if (!e) e = step_text_copy(reading, object, "word_delimiter_token", NULL, &ctc->delimiter);
    if (!e) e = step_flag(reading, object, "cleanup", true, &ctc->clean_up);
    return e || !ctc->clean_up || *ctc->delimiter ? e : step_refuse(reading, "an empty word_delimiter_token");
}

static enum error_code ctc_add(struct ctc *ctc, const char *text, size_t bytes, struct token_texts *out,
                               struct error *err)
{
    ctc->bare.bytes = ctc->clean.bytes = 0;
    enum error_code e = text_buffer_replaced(&ctc->bare, text, bytes, ctc->pad, "", err);
    if (!e && ctc->clean_up) e = token_text_clean_up(ctc->bare.text, ctc->bare.bytes, &ctc->clean, err);
    if (e) return e;
    const struct text_buffer *last = ctc->clean_up ? &ctc->clean : &ctc->bare;
    if (last->bytes == 0) return OK;
    e = ctc->clean_up ? text_buffer_replaced(&out->text, last->text, last->bytes, ctc->delimiter, " ", err)
                      : text_buffer_add(&out->text, last->text, last->bytes, err);
    return e ? e : token_texts_end(out, err);
}

static enum error_code ctc_apply(void *state, const struct token_texts *in, struct token_texts *out, struct error *err)
{
    enum error_code e = OK;
    const char *before = NULL;
    size_t bytes, bytes_before = 0;
    for (int64_t i = 0; !e && i < in->count; i++) {
        const char *text = token_texts_at(in, i, &bytes);
        const bool again = before && bytes == bytes_before && memcmp(text, before, bytes) == 0;
        if (!again) e = ctc_add(state, text, bytes, out, err);
        before = text, bytes_before = bytes;
    }
    return e;
}

static void ctc_close(void *state)
{
    struct ctc *ctc = state;
    free(ctc->pad), free(ctc->delimiter);
    text_buffer_free(&ctc->bare), text_buffer_free(&ctc->clean);
    free(ctc);
}

const struct decoder_kind decoder_ctc = { { "CTC", ctc_read, ctc_close }, ctc_apply };
