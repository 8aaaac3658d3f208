/* bpe.c -- the decoder BPEDecoder: the sign for the end of a word becomes a blank; in the last text it is left out.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"

/* The state is the sign itself.  For an empty one the library puts blanks everywhere, which nobody means. */
static enum error_code bpe_decoder_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_keys(reading, object, "suffix");
    if (!e) e = step_text_copy(reading, object, "suffix", NULL, (char **)state);
    return e || **(char **)state ? e : step_refuse(reading, "an empty suffix");
}

static enum error_code bpe_decoder_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                         struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        e = text_buffer_replaced(&out->text, text, bytes, state, i + 1 < in->count ? " " : "", err);
        if (!e) e = token_texts_end(out, err);
    }
    return e;
}

const struct decoder_kind decoder_bpe = { { "BPEDecoder", bpe_decoder_read, NULL }, bpe_decoder_apply };
