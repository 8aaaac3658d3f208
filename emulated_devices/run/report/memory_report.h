/* memory_report.h -- what `orrery plan --memory-of` says: the memory of the fullest device as a framework has it.
 * run/plan.c and run/report/plan_report.c call these functions. */
#ifndef ORRERY_MEMORY_REPORT_H
#define ORRERY_MEMORY_REPORT_H

#include "emulated_devices/run/report/plan_report.h"

/** Print the peaks, the memory beside them, whether they fit, and what is held.  @param has  bytes; 0: no limit. */
void memory_report(const struct train_record *, uint64_t has);

/** Add the same as one object. */
void memory_report_json(cJSON *to, const struct train_record *);

/** @return OK; ERR_CHECK if the fullest device needs more than it has. */
enum error_code memory_report_check(const struct train_record *, uint64_t has, struct error *);

#endif
