/* bert.c -- the processor BertProcessing: [CLS] before a text, [SEP] behind it.  kinds.def lists it.
 * Errors: ERR_FORMAT of a wrong file, ERR_MEMORY. */
#include "ref/text/processors/around.h"

static enum error_code bert_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const enum error_code e = step_keys(reading, object, "cls sep");
    return e ? e : around_read(state, reading, object);
}

const struct processor_kind processor_bert = { { "BertProcessing", bert_read, NULL }, around_apply, around_added };
