/* report_changes.h -- what would make a plan fit, as a list. */
#ifndef ORRERY_TRAIN_REPORT_CHANGES_H
#define ORRERY_TRAIN_REPORT_CHANGES_H

#include "emulated_devices/search/search.h"
#include <stdio.h>

/** Print a line for each of n changes: the memory and the time of the plan with it, and its words.  n may be 0. */
void report_changes_print(FILE *out, const struct change *change, int n);

#endif
