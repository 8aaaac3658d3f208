/* prepend.c -- the normalizer Prepend: a text before each text that is not empty.  kinds.def lists it.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY. */
#include "ref/text/normalizers/normalizer.h"
#include <string.h>

/* The state is the text itself. */
static enum error_code prepend_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const enum error_code e = step_keys(reading, object, "prepend");
    return e ? e : step_text_copy(reading, object, "prepend", NULL, (char **)state);
}

static enum error_code prepend_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                     struct error *err)
{
    const enum error_code e = text_buffer_add(out, state, strlen(state), err);
    return e ? e : text_buffer_add(out, text, bytes, err);
}

const struct normalizer_kind normalizer_prepend = { { "Prepend", prepend_read, NULL }, prepend_apply, NULL };
