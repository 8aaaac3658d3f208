/* check_operations.h -- what `orrery check` says of each operation by itself.  check.c calls these functions.  No
 * function returns an error code. */
#ifndef ORRERY_CHECK_OPERATIONS_H
#define ORRERY_CHECK_OPERATIONS_H

#include "emulated_devices/check/report/singles.h"
#include <stdio.h>

/** A verdict in full, and in a word or two. */
const char *operation_verdict(enum single_verdict);
const char *operation_word(enum single_verdict);

/** The counts, and a line for each wrong operation; of many wrong ones the first, unless `all`. */
void operations_print(FILE *, const struct singles *, bool all);

/** A wrong operation and its evidence.  @param where  ranks and microbatches that have it, or empty. */
void operations_print_wrong(FILE *, const struct single_result *, const char *where);

/** "operations": [{ "result", "made_by", "verdict", ... }] into an object. */
void operations_json(cJSON *, const struct singles *);

#endif
