/* byte_level.c -- the processor ByteLevel: it trims the places of tokens in the text, which nobody has here, so that
 * tokens stay as they are.  kinds.def lists it.  Errors: ERR_FORMAT of a wrong file. */
#include "ref/text/processors/processor.h"
#include "ref/text/byte_letters.h"

static bool level_processor_apply(const void *state, const struct token_ids *in, bool special, struct token_ids *out)
{
    (void)state, (void)special;
    return token_ids_append(out, in->id, in->count);
}

const struct processor_kind processor_byte_level = { { "ByteLevel", byte_letters_read, NULL },
                                                     level_processor_apply, NULL };
