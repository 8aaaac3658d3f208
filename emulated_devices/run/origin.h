/* origin.h -- where a result comes from: program, command line, settings, machine.  For JSON, logs and checkpoints.
 * between.c, log.c and run/report/report_json.c call these functions. */
#ifndef ORRERY_TRAIN_ORIGIN_H
#define ORRERY_TRAIN_ORIGIN_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

struct train_options;

/** Give this run a short name, which tells its lines, reports and checkpoints from those of others.  On the device that
 *  writes, once, before anything is written. */
void origin_name_run(void);

/** The run's name, 8 hexadecimal digits.  @return NULL: none was given, as in a plan. */
const char *origin_run(void);

/** Add "written_by" (run, version, command, model, seed, host, system, processor, cores) and "settings", the flags that
 *  were given as texts, to a report.  @return false if there is no memory. */
bool origin_add_json(cJSON *root, const struct train_options *);

/** Do the same as a file for --config, for free(); what is not a setting is under the key `written-by`.
 *  @return NULL and ERR_MEMORY if there is no memory. */
char *origin_text(const struct train_options *, struct error *);

#endif
