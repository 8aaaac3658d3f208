/* dispatch_planned.h -- whole steps under expert schemes that adapt, planned on an uneven load, beside what papers say.
 * cli/bench/schemes/dispatch.c calls these functions.  Only planning can fail: the errors of a plan. */
#ifndef ORRERY_BENCH_DISPATCH_PLANNED_H
#define ORRERY_BENCH_DISPATCH_PLANNED_H

#include "ref/error.h"
#include <cjson/cJSON.h>

enum { PLANNED_SCHEMES = 6 };

/* The virtual time of a step, in seconds, for each row of the table. */
struct dispatch_planned { double seconds[PLANNED_SCHEMES]; };

/** Plan a step with each scheme.  Local.  @return OK, or the error of a plan. */
enum error_code dispatch_planned_measure(struct dispatch_planned *, struct error *);

/** Print each step's virtual time, and which claims go their way. */
void dispatch_planned_print(const struct dispatch_planned *);

/** Add the rows to a report's root, as `planned`: scheme, seconds; of a claim what it compares with, and its source. */
void dispatch_planned_json(const struct dispatch_planned *, cJSON *root);

#endif
