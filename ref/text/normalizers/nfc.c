/* nfc.c -- the normalizer NFC: characters and their marks become one character where Unicode has one.
 *
 * kinds.def lists it.  The composition is utf8proc's.  The library `tokenizers` has an older Unicode: marks that it
 * does not know stay where they are, and nothing moves across them.  Errors: ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

static enum error_code nfc_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    (void)state;
    return step_keys(reading, object, "");
}

/* The stretch is composed by itself: nothing in it moves across its ends. */
static enum error_code nfc_add(struct text_buffer *out, const char *text, size_t bytes, struct error *err)
{
    utf8proc_uint8_t *composed = NULL;
    if (bytes == 0) return OK;
    const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &composed,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const enum error_code e = n < 0 ? fail(err, ERR_MEMORY, "no memory for a text of %zu bytes", bytes)
                                    : text_buffer_add(out, (const char *)composed, (size_t)n, err);
    free(composed);
    return e;
}

static enum error_code nfc_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                 struct error *err)
{
    size_t from = 0;
    uint32_t c;
    enum error_code e = OK;
    (void)state;
    for (size_t at = 0; !e && at < bytes;) {
        const int n = utf8_first(text + at, bytes - at, &c);
        if (utf8proc_get_property((utf8proc_int32_t)c)->combining_class != 0 && !is_in_class(c, "reordered")) {
            e = nfc_add(out, text + from, at - from, err);
            if (!e) e = text_buffer_add(out, text + at, (size_t)n, err);
            from = at + (size_t)n;
        }
        at += (size_t)n;
    }
    return e ? e : nfc_add(out, text + from, bytes - from, err);
}

const struct normalizer_kind normalizer_nfc = { { "NFC", nfc_read, NULL }, nfc_apply, NULL };
