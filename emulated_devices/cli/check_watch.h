/* check_watch.h -- `orrery check GOLDEN DIR --watch`: judges each step of a training run while it runs.
 * cli/check.c calls. */
#ifndef ORRERY_CHECK_WATCH_H
#define ORRERY_CHECK_WATCH_H

#include "emulated_devices/cli/check_found.h"
#include "ref/golden/golden.h"

enum { WATCH_TIMEOUT = 600 };           /* seconds that a step may take, unless --timeout says so */

/* Options of --watch; options: a struct check_options. */
#define WATCH_OPTIONS(options)                                                                                         \
    { "--watch", NULL, OPTION_SWITCH, &(options).watch,                                                                \
      .help = "judge each step as a running program writes it: ACTUAL is the folder of its dump, which may not be "    \
              "there yet (docs/checking/dumps.md)" },                                                                  \
    { "--steps", "N", OPTION_INT, &(options).steps, .min = 1, .max = GOLDEN_MOST_STEPS,                                \
      .given = &(options).steps_given,                                                                                 \
      .help = "with --watch: end after step N; default: after the golden file's last" },                               \
    { "--timeout", "SECONDS", OPTION_DOUBLE, &(options).timeout, .min = 0.1, .max = 1e9,                               \
      .given = &(options).timeout_given, .help = "with --watch: give up when no step has come for so long" },         \
    { "--go-on", NULL, OPTION_SWITCH, &(options).go_on,                                                                \
      .help = "with --watch: judge the steps after a wrong one, too" }

/** Refuse options that do not go together.  @return OK or ERR_USAGE. */
enum error_code check_watch_options(const struct check_options *, struct error *);

/**
 * Watch a folder, and print a line for each step, until the last is judged, one is wrong, the program ends, nothing
 * comes any more, or a signal asks.
 * @return OK if all steps are right; ERR_CHECK if one is wrong, or not all could be judged; ERR_PLAN if the golden file
 *         cannot be watched; ERR_FILE, ERR_MEMORY.
 */
enum error_code check_watch(const struct check_options *, const struct golden *, struct error *);

#endif
