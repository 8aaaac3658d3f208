/* check_verdict.h -- prints the last line of `orrery check`, its verdict.  check.c calls these functions.  No
 * function returns an error code. */
#ifndef ORRERY_CHECK_VERDICT_H
#define ORRERY_CHECK_VERDICT_H

#include "emulated_devices/check/report/checked_kinds.h"
#include <stdio.h>

/* CHECK_RECORDED: all that is recorded is right, and the program declares that it has not recorded some tensors. */
enum check_verdict { CHECK_OK, CHECK_RECORDED, CHECK_NOT_ENOUGH, CHECK_FAILED };

/** Whether nothing is wrong, and enough was judged: exit status 0. */
static inline bool check_verdict_holds(enum check_verdict verdict)
{
    return verdict == CHECK_OK || verdict == CHECK_RECORDED;
}

/** "OK", "OK for what was recorded", "NOT ENOUGH" or "FAILED". */
const char *check_verdict_word(enum check_verdict);

/**
 * Print how much is right, or wrong: "FAILED: 1 of 250 tensors differs, first act/h.0.attn.out".
 * @param first  the first that is wrong; NULL if none is.
 */
void check_verdict_print(FILE *, enum check_verdict, const struct checked_kinds *, const char *first);

#endif
