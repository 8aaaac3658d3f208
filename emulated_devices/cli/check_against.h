/* check_against.h -- `orrery check [GOLDEN] A --against B`: two dumps of the same program.
 * check.c calls check_against. */
#ifndef ORRERY_CHECK_AGAINST_H
#define ORRERY_CHECK_AGAINST_H

#include "emulated_devices/cli/check_judged.h"

/* The command was given this.  Index 0 is A, 1 is B. */
struct check_against {
    const struct golden *golden;        /* NULL: the model is not known */
    const char *golden_path, *path[2];
    struct actual *actual[2];
    struct check_setting setting[2];
    unsigned required;                  /* kinds of --require */
    bool all;
    const char *json;                   /* NULL: none */
};

/**
 * Compare, print the report, and write the JSON.
 * @return OK: the dumps are the same within rounding; ERR_CHECK, naming the first tensor that is not, or that cannot be
 *         judged; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code check_against(const struct check_against *, struct error *);

#endif
