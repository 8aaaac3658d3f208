/* nmt.c -- the normalizer Nmt: control characters are removed, and unusual white space becomes a blank, as
 * sentencepiece does for translation.
 *
 * kinds.def lists it.  The characters are those of normalizers/unicode.rs in the library `tokenizers`.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/characters.h"
#include "ref/text/normalizers/normalizer.h"

static bool nmt_removes(uint32_t c)
{
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}

static bool nmt_blanks(uint32_t c)
{
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static enum error_code nmt_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                 struct error *err)
{
    enum error_code e = OK;
    uint32_t c;
    (void)state;
    for (size_t at = 0; !e && at < bytes;) {
        at += (size_t)utf8_first(text + at, bytes - at, &c);
        if (!nmt_removes(c)) e = text_buffer_put(out, nmt_blanks(c) ? ' ' : c, err);
    }
    return e;
}

const struct normalizer_kind normalizer_nmt = { { "Nmt", step_read_nothing, NULL }, nmt_apply, NULL };
