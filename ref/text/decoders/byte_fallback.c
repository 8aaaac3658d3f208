/* byte_fallback.c -- the decoder ByteFallback: texts such as <0xE2> become bytes.
 *
 * kinds.def lists it.  Bytes in a row that are valid UTF-8 together become one text; else each of them becomes U+FFFD.
 * Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include "ref/text/utf8.h"
#include <string.h>

/* The digit's value; -1: it is no digit. */
static int byte_fallback_digit(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = memchr(digits, c, sizeof digits - 1);
    return at ? (int)(at - digits) % 16 : -1;
}

/* The byte of <0xE2>; -1: it is another text.  The library's reader of numbers takes a sign, too: <0x+A> is 10. */
static int byte_fallback_byte(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const int high = text[3] == '+' ? 0 : byte_fallback_digit(text[3]), low = byte_fallback_digit(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* At the end of an unfinished text, bytes that begin a character wait for the rest of it. */
static enum error_code byte_fallback_end(struct token_texts *out, struct text_buffer *run, bool last, struct error *err)
{
    int64_t wrong = 0;
    enum error_code e = OK;
    if (run->bytes == 0) return OK;
    const size_t begun = last && out->unfinished ? utf8_unfinished(run->text, run->bytes) : 0;
    if (utf8_is_valid(run->text, run->bytes - begun)) e = token_texts_add(out, run->text, run->bytes, err);
    else wrong = (int64_t)run->bytes;
    for (int64_t i = 0; !e && i < wrong; i++) e = token_texts_add(out, "\uFFFD", strlen("\uFFFD"), err);
    run->bytes = 0;
    return e;
}

static enum error_code byte_fallback_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                           struct error *err)
{
    struct text_buffer run = { 0 };
    enum error_code e = OK;
    (void)state;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        const int byte = byte_fallback_byte(text, bytes);
        if (byte >= 0) { e = text_buffer_add(&run, &(char){ (char)byte }, 1, err); continue; }
        e = byte_fallback_end(out, &run, false, err);
        if (!e) e = token_texts_add(out, text, bytes, err);
    }
    if (!e) e = byte_fallback_end(out, &run, true, err);
    text_buffer_free(&run);
    return e;
}

const struct decoder_kind decoder_byte_fallback = { { "ByteFallback", step_read_nothing, NULL },
                                                    byte_fallback_apply };
