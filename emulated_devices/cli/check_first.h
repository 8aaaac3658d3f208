/* check_first.h -- the last line of `orrery check --first`.  check.c prints it. */
#ifndef ORRERY_CHECK_FIRST_H
#define ORRERY_CHECK_FIRST_H

#include "emulated_devices/check/report/first.h"
#include <stdio.h>

struct cJSON;

/** Say what is wrong first, and how much was not looked at. */
void check_first_print(FILE *, const char *first, const struct first_found *);

/** "stopped_at", "looked_at" and "not_looked_at" into an object.  @param first  NULL: nothing is wrong. */
void check_first_json(struct cJSON *root, const char *first, const struct first_found *);

#endif
