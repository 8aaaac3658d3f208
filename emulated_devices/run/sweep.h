/* sweep.h -- a run for each combination of settings, and their results.  cli/sweep.c calls these functions. */
#ifndef ORRERY_RUN_SWEEP_H
#define ORRERY_RUN_SWEEP_H

#include "ref/error.h"
#include "ref/io/yaml.h"
#include <stdbool.h>

enum { SWEEP_MOST_AXES = 8 };

/* The file, and what it says. */
struct sweep {
    const char *program, *file, *dir;   /* that trains; the file; the folder for the runs' folders */
    struct yaml *root;                  /* for yml_free */
    const struct yaml *set, *axis[SWEEP_MOST_AXES];     /* settings of every run; lists of values */
    int axes, size[SWEEP_MOST_AXES], runs;
};

/* Whether a run would take a setting.  @param file  names it in messages. */
typedef enum error_code sweep_check(const struct yaml *setting, const char *file, struct error *);

/** Read the file, and check every key and value before the first run.  @return OK, ERR_USAGE, or as yml_read. */
enum error_code sweep_read(struct sweep *, sweep_check *, struct error *);

/** The value of an axis in a run. */
const char *sweep_value(const struct sweep *, int run, int axis);

/* This has a run's exit status, 128 and more if it was stopped, -1 if it did not run; and its results, NaN: none. */
struct sweep_result { int how; double validation, loss, seconds, virtual_ps; };

/* Is told of each run before it begins.  @param done  its results are there: it is not repeated.
 * @param gone  seconds so far.  @param part  of all work that is done. */
typedef void sweep_listener(const struct sweep *, int run, bool done, double gone, double part);

/** Run all of them, until a signal stops one.  @param[out] result  [runs].
 *  @return OK, ERR_FILE, ERR_MEMORY or ERR_COMM. */
enum error_code sweep_run(const struct sweep *, struct sweep_result *result, sweep_listener *, struct error *);

/** Judge the runs.  @param[out] status  of the signal that has stopped a run; else unchanged.
 *  @return OK, or ERR_CHECK or ERR_FORMAT about the first run that failed. */
enum error_code sweep_verdict(const struct sweep *, const struct sweep_result *, int *status, struct error *);

#endif
