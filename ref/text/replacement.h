/* replacement.h -- a pattern, and the text that each of its matches becomes: a step Replace, before its room's `apply`.
 *
 * replace.c of normalizers/ and of decoders/ call this file.
 */
#ifndef ORRERY_REPLACEMENT_H
#define ORRERY_REPLACEMENT_H

#include "ref/text/step.h"

struct replacement { struct pattern *pattern; char *content; };

/** Read "pattern" and "content" into a new state.  @return OK; ERR_FORMAT of a wrong file; ERR_MEMORY. */
enum error_code replacement_read(void **state, const struct step_reading *, const cJSON *object);
void replacement_close(void *state);

#endif
