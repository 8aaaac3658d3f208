/* unicode_form.c -- brings texts to normal forms, by utf8proc.
 *
 * The normalizers NFC, NFD, NFKC, NFKD and BertNormalizer call it.  The library `tokenizers` has an older Unicode:
 * characters that it does not know stay as they are, and nothing moves or joins across them.  The class "composing" of
 * classes.h has those that it knows.  Errors: ERR_MEMORY.
 */
#include "ref/text/normalizers/unicode_form.h"
#include "ref/text/character_sets.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

/* A character that begins with a smaller byte never changes: before U+0300 in NFC, else ASCII. */
enum { QUICK_COMPOSED = 0xCC, QUICK = 0x80 };

/* A stretch of characters that the library knows. */
static enum error_code unicode_form_map(struct unicode_form form, const char *text, size_t bytes,
                                        struct text_buffer *out, struct error *err)
{
    utf8proc_uint8_t *mapped = NULL;
    if (bytes == 0) return OK;
    const utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &mapped,
                     UTF8PROC_STABLE | (form.composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                     (form.compatible ? UTF8PROC_COMPAT : 0));
    const enum error_code e = n < 0 ? fail(err, ERR_MEMORY, "no memory for a text of %zu bytes", bytes)
                                    : text_buffer_add(out, (const char *)mapped, (size_t)n, err);
    free(mapped);
    return e;
}

/* Stretches of known characters, and others between them. */
static enum error_code unicode_form_add_slowly(struct unicode_form form, const struct character_class *known,
                                               const char *text, size_t bytes, struct text_buffer *out,
                                               struct error *err)
{
    size_t from = 0;
    uint32_t c;
    enum error_code e = OK;
    for (size_t at = 0; !e && at < bytes;) {
        const size_t n = (size_t)utf8_first(text + at, bytes - at, &c);
        if (!class_has(known, c)) {
            e = unicode_form_map(form, text + from, at - from, out, err);
            if (!e) e = text_buffer_add(out, text + at, n, err);
            from = at + n;
        }
        at += n;
    }
    return e ? e : unicode_form_map(form, text + from, bytes - from, out, err);
}

/* Characters that never change are passed on, but the last before others, which a mark may change. */
enum error_code unicode_form_add(struct unicode_form form, const char *text, size_t bytes, struct text_buffer *out,
                                 struct error *err)
{
    const struct character_class *known = class_named("composing");
    const uint8_t *byte = (const uint8_t *)text, quick = form.composed && !form.compatible ? QUICK_COMPOSED : QUICK;
    enum error_code e = OK;
    for (size_t done = 0; !e && done < bytes;) {
        size_t begin = done, end = done;
        for (; end < bytes && byte[end] < quick; end++) if ((byte[end] & 0xC0) != 0x80) begin = end;
        if (end == bytes) begin = end;
        e = text_buffer_add(out, text + done, begin - done, err);
        while (end < bytes && (byte[end] >= quick || (byte[end] & 0xC0) == 0x80)) end++;
        if (!e) e = unicode_form_add_slowly(form, known, text + begin, end - begin, out, err);
        done = end;
    }
    return e;
}
