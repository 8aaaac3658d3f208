/* byte_level.c -- the processor ByteLevel: it trims the places of tokens in the text, which nobody has here, so that
 * tokens stay as they are.  kinds.def lists it.  Errors: ERR_FORMAT of a wrong file. */
#include "ref/text/processors/processor.h"

static enum error_code level_processor_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool flag;
    (void)state;
    enum error_code e = step_keys(reading, object, "add_prefix_space trim_offsets use_regex");
    if (!e) e = step_flag(reading, object, "add_prefix_space", true, &flag);
    if (!e) e = step_flag(reading, object, "trim_offsets", true, &flag);
    return e ? e : step_flag(reading, object, "use_regex", true, &flag);
}

static bool level_processor_apply(const void *state, const struct token_ids *in, bool special, struct token_ids *out)
{
    (void)state, (void)special;
    return token_ids_append(out, in->id, in->count);
}

const struct processor_kind processor_byte_level = { { "ByteLevel", level_processor_read, NULL },
                                                     level_processor_apply, NULL };
