/* byte_level.c -- the decoder ByteLevel: letters become the bytes that they stand for, and all texts one.
 *
 * kinds.def lists it.  A text with another character stays as it is.  Bytes that are no UTF-8 become U+FFFD.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include "ref/text/byte_letters.h"
#include "ref/text/utf8.h"

static enum error_code level_decoder_add(struct text_buffer *bytes_out, const char *text, size_t bytes,
                                         struct error *err)
{
    const size_t before = bytes_out->bytes;
    uint32_t c;
    enum error_code e = text_buffer_reserve(bytes_out, bytes, err);
    if (e) return e;
    for (size_t i = 0; i < bytes;) {
        const int n = utf8_first(text + i, bytes - i, &c), byte = n > 0 ? letter_byte(c) : -1;
        if (byte < 0) return bytes_out->bytes = before, text_buffer_add(bytes_out, text, bytes, err);
        bytes_out->text[bytes_out->bytes++] = (char)byte;
        i += (size_t)n;
    }
    return OK;
}

static enum error_code level_decoder_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                        struct error *err)
{
    struct text_buffer all = { 0 };
    size_t bytes;
    enum error_code e = OK;
    (void)state;
    for (int64_t i = 0; !e && i < in->count; i++) {
        const char *text = token_texts_at(in, i, &bytes);
        e = level_decoder_add(&all, text, bytes, err);
    }
    if (!e) e = utf8_add_repaired(&out->text, all.text, all.bytes, in->unfinished, err);
    text_buffer_free(&all);
    return e ? e : token_texts_end(out, err);
}

const struct decoder_kind decoder_byte_level = { { "ByteLevel", byte_letters_read, NULL }, level_decoder_apply };
