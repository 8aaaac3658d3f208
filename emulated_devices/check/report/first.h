/* first.h -- finds the first wrong tensor in the order of execution, and looks at nothing behind it.
 *
 * Serial.  emulated_devices/cli/check_judged.c calls first_check for `orrery check --first`.
 */
#ifndef ORRERY_FIRST_H
#define ORRERY_FIRST_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

struct first_found {
    bool stopped;                       /* something is wrong: what comes behind it was not looked at */
    int looked, all;                    /* tensors of ACTUAL that were looked at, and in all */
};

/**
 * Recompute operations until one is wrong.  Then compare with the golden file what comes before that operation and was
 * not recomputed, and its result.  If nothing is wrong, all has been looked at.
 * @param[out] result, singles  as of check_files and singles_check; if `stopped`, of the tensors that were looked at.
 * @return as both; nothing to free on failure.
 */
enum error_code first_check(const struct golden *, const struct actual *, enum dtype format, struct rounding,
                            struct check_result *result, struct singles *singles, struct first_found *,
                            struct error *);

#endif
