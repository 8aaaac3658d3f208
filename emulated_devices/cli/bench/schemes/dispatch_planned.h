/* dispatch_planned.h -- whole steps under expert schemes that adapt, planned on an uneven load, beside what papers say.
 * cli/bench/schemes/dispatch.c calls this function. */
#ifndef ORRERY_BENCH_DISPATCH_PLANNED_H
#define ORRERY_BENCH_DISPATCH_PLANNED_H

#include "ref/error.h"

/** Plan a step with each scheme, and print its virtual time, and which claims go their way.  Local.
 *  @return OK, or the error of a plan. */
enum error_code dispatch_planned_print(struct error *);

#endif
