/* check_exact.h -- `orrery check --exact`: holds a dump whose sums do not round to the rule of docs/checking/exact.md,
 * bit by bit.  check.c calls these functions. */
#ifndef ORRERY_CHECK_EXACT_H
#define ORRERY_CHECK_EXACT_H

#include "emulated_devices/cli/check_found.h"

/** Refuse options that are about bounds.  @return OK or ERR_USAGE. */
enum error_code check_exact_options(const struct check_options *, struct error *);

/**
 * Hold ACTUAL to the rule, print what was found, and write the document of --json.
 * @return OK if all that ACTUAL has is right, and enough was judged; ERR_CHECK naming the first tensor that differs, or
 *         what could not be judged; errors of bits_check; ERR_FILE.
 */
enum error_code check_exact(const struct check_options *, const struct golden *, struct actual *, struct error *);

#endif
