/* check_verdict.h -- prints the last line of `orrery check`, its verdict.  check.c calls these functions.  No
 * function returns an error code. */
#ifndef ORRERY_CHECK_VERDICT_H
#define ORRERY_CHECK_VERDICT_H

#include "emulated_devices/check/report/checked_kinds.h"
#include <stdio.h>

enum check_verdict { CHECK_OK, CHECK_NOT_ENOUGH, CHECK_FAILED };

/** "OK", "NOT ENOUGH" or "FAILED". */
const char *check_verdict_word(enum check_verdict);

/**
 * Print how much is right, or wrong: "FAILED: 1 of 250 tensors differs, first act/h.0.attn.out".
 * @param first  the first that is wrong; NULL if none is.
 */
void check_verdict_print(FILE *, enum check_verdict, const struct checked_kinds *, const char *first);

#endif
