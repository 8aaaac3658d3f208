/* strip_accents.c -- the normalizer StripAccents: marks are removed.  Files have NFD or NFKD before it, which makes
 * marks of accents.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/utf8.h"

static enum error_code strip_accents_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                           struct error *err)
{
    const struct character_class *mark = class_named("mark");
    enum error_code e = OK;
    uint32_t c;
    (void)state;
    for (size_t at = 0, n; !e && at < bytes; at += n) {
        n = (size_t)utf8_first(text + at, bytes - at, &c);
        if (c < 0x80 || !class_has(mark, c)) e = text_buffer_add(out, text + at, n, err);
    }
    return e;
}

const struct normalizer_kind normalizer_strip_accents = { { "StripAccents", step_read_nothing, NULL },
                                                          strip_accents_apply, NULL };
