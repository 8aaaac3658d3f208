/* plan_report.h -- what `orrery plan` says besides what a run does: the critical path, waits, the peak's moment. */
#ifndef ORRERY_TRAIN_PLAN_REPORT_H
#define ORRERY_TRAIN_PLAN_REPORT_H

#include "emulated_devices/run/report/report.h"
#include "emulated_devices/train/dry_run/plan_path.h"

void plan_report_path(const struct train_record *);
void plan_report_waits(const struct train_record *);
void plan_report_peak(const struct train_record *);

/** Everything of these, and the folding, as one object. */
void plan_report_json(cJSON *root, const struct train_record *);

#endif
