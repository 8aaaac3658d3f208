/* byte_level.c -- the normalizer ByteLevel: each byte becomes a letter, as GPT-2 has it.  kinds.def lists it.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY. */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/byte_letters.h"

static enum error_code level_normalizer_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                        struct error *err)
{
    (void)state;
    return byte_letters_add(out, text, bytes, err);
}

const struct normalizer_kind normalizer_byte_level = { { "ByteLevel", step_read_nothing, NULL },
                                                       level_normalizer_apply, NULL };
