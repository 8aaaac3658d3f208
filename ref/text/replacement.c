/* replacement.c -- reads and closes steps Replace.
 *
 * The normalizer and the decoder of this name call it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/replacement.h"
#include <stdlib.h>

enum error_code replacement_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct replacement), reading);
    struct replacement *replacement = *state;
    if (!e) e = step_keys(reading, object, "pattern content");
    if (!e) e = step_pattern(reading, object, &replacement->pattern);
    return e ? e : step_text_copy(reading, object, "content", NULL, &replacement->content);
}

void replacement_close(void *state)
{
    struct replacement *replacement = state;
    pattern_close(replacement->pattern);
    free(replacement->content);
    free(replacement);
}
