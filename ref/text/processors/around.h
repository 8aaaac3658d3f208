/* around.h -- one special token before a text and one behind it.  bert.c and roberta.c, the processors, call it. */
#ifndef ORRERY_AROUND_H
#define ORRERY_AROUND_H

#include "ref/text/processors/processor.h"

/* The tokens of "cls", before a text, and "sep", behind it. */
struct around { int32_t before, behind; };

/** Read both, each a list of a name and an id.  @param[out] state  a struct around.
 *  @return as the readers of step.h. */
enum error_code around_read(void **state, const struct step_reading *, const cJSON *object);

/** As `apply` of a processor. */
bool around_apply(const void *state, const struct token_ids *in, bool special, struct token_ids *out);

/** As `added` of a processor. */
int64_t around_added(const void *state);

#endif
