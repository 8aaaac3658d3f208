/* lowercase.c -- the normalizer Lowercase: each character becomes its lower case, whatever stands beside it.
 *
 * kinds.def lists it; bert.c calls characters_lower.  The table is Rust's (classes.h).  Errors: ERR_FORMAT of a wrong
 * file, ERR_MEMORY.
 */
#include "ref/text/character_sets.h"
#include "ref/text/normalizers/characters.h"
#include "ref/text/normalizers/normalizer.h"

/* U+0130 alone becomes two characters: i, and a dot above. */
enum { CAPITAL_I_WITH_DOT = 0x130 };
#define SMALL_I_AND_DOT "i\xCC\x87"

enum error_code characters_lower(const char *text, size_t bytes, struct text_buffer *out, struct error *err)
{
    uint32_t c;
    enum error_code e = text_buffer_reserve(out, bytes, err);
    for (size_t at = 0; !e && at < bytes;) {
        at += (size_t)utf8_first(text + at, bytes - at, &c);
        if (c == CAPITAL_I_WITH_DOT) e = text_buffer_add(out, SMALL_I_AND_DOT, sizeof SMALL_I_AND_DOT - 1, err);
        else e = text_buffer_put(out, c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 'a' - 'A' : 0) : lower_of(c), err);
    }
    return e;
}

static enum error_code lowercase_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                       struct error *err)
{
    (void)state;
    return characters_lower(text, bytes, out, err);
}

const struct normalizer_kind normalizer_lowercase = { { "Lowercase", step_read_nothing, NULL }, lowercase_apply, NULL };
