/* runs.h -- what `orrery report` reads: a run's JSON, its log, or its checkpoint.
 *
 * Files are not trusted: what is missing or of another type is as if it were not there.  cli/report.c, charts.c and
 * report.c call these functions.
 */
#ifndef ORRERY_REPORT_RUNS_H
#define ORRERY_REPORT_RUNS_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdbool.h>

enum { MOST_RUNS = 12 };

struct told_run {
    const char *path;                   /* as given */
    char name[64];                      /* its last part */
    cJSON *root;                        /* as --json writes it; of a checkpoint only what it has */
};

/** Read one.  @return OK; ERR_FILE; ERR_FORMAT if it is none of the three. */
enum error_code run_read(struct told_run *, const char *path, struct error *);
void run_free(struct told_run *);

/** A number, a text of an object; if there is none, `none` and NULL. */
double run_number(const cJSON *object, const char *key, double none);
const char *run_text(const cJSON *object, const char *key);

/** The number of an array's element; `none` if it has none. */
double run_element(const cJSON *array, int i, double none);

#endif
