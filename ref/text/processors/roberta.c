/* roberta.c -- the processor RobertaProcessing: <s> before a text, </s> behind it.  Its other keys are about places in
 * the text, which nobody has here.  kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY. */
#include "ref/text/processors/around.h"

static enum error_code roberta_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool flag;
    enum error_code e = step_keys(reading, object, "cls sep trim_offsets add_prefix_space");
    if (!e) e = step_flag(reading, object, "trim_offsets", true, &flag);
    if (!e) e = step_flag(reading, object, "add_prefix_space", true, &flag);
    return e ? e : around_read(state, reading, object);
}

const struct processor_kind processor_roberta = { { "RobertaProcessing", roberta_read, NULL }, around_apply,
                                                  around_added };
