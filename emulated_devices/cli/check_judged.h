/* check_judged.h -- all that `orrery check` finds of one dump.  check_found.c asks for ACTUAL, and check_against.c for
 * each of two dumps. */
#ifndef ORRERY_CHECK_JUDGED_H
#define ORRERY_CHECK_JUDGED_H

#include "emulated_devices/check/report/first.h"

/* How a dump's program computes: --dtype, --sums, --parts, or what the dump says. */
struct check_setting { enum dtype format; struct rounding rounding; };

struct check_judged {
    struct check_result whole;          /**< Comparison with the golden file. */
    struct singles single;              /**< Results recomputed one by one. */
    struct first_found first;           /* of --first; else all zero */
};

/**
 * Compare a dump with a golden file, recompute its operations, and judge its later passes.
 * @param step  keep this step's tensors only, 1, 2, ...; 0: all.
 * @param first  stop behind the first wrong tensor; not together with a step.
 * @return OK, whatever the verdicts; ERR_CHECK if nothing can be compared; ERR_FILE, ERR_FORMAT, ERR_MEMORY.  Nothing
 *         to free on failure.
 */
enum error_code check_judge(const struct golden *, struct actual *, const struct check_setting *, int64_t step,
                            bool first, struct check_judged *, struct error *);
void check_judged_free(struct check_judged *);

/**
 * Explain the first tensor that differs: a gradient of another step, or a sum over other sequences; any tensor times a
 * factor.  Slow for a gradient: it runs the model, from ACTUAL's own weights.
 * @return out; empty: none differs, or nothing explains it.
 */
const char *check_judged_first(char *out, size_t size, const struct golden *, const struct actual *,
                               const struct check_result *);

#endif
