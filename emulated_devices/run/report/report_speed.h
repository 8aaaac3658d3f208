/* report_speed.h -- what each device of a mesh does in a second of virtual time.  report_json.c calls these
 * functions.  No function returns an error code. */
#ifndef ORRERY_TRAIN_REPORT_SPEED_H
#define ORRERY_TRAIN_REPORT_SPEED_H

#include "emulated_devices/run/report/report.h"
#include "emulated_devices/run/report/report_budget.h"
#include <cjson/cJSON.h>

/* How the operations of attention are counted: only pairs of tokens that see each other, which with a causal mask is
 * half of them, or all pairs of a sequence.  Both are published as model FLOP utilization (docs/words.md). */
enum attention_count { ATTENTION_BY_HALF, ATTENTION_WHOLE, ATTENTION_COUNTS };

struct virtual_speed {
    double seconds;                     /* of a step; replayed, if it was */
    double tokens;                      /* a second, of each device; 0: there is no step, or it takes no time */
    double flops[ATTENTION_COUNTS];     /* operations a second, of each device */
    double utilization[ATTENTION_COUNTS];       /* their share of the device's rate; 0: computing takes no time */
    double charged, charged_share;      /* the same of all operations that devices were charged with: pairs that the
                                         * mask shows, and what is computed again */
};

/** The speed of a run or plan.  A step's operations are three times those of its forward pass, or the passes of an
 *  optimizer without a backward pass; what is computed again does not count.  Rates are those of the format, also where
 *  products with exact sums go by that of fp64. */
struct virtual_speed virtual_speed_of(const struct train_record *);

/** The training of --tokens, whose steps are as this run's or plan's. */
struct training report_training_of(const struct train_record *);

/** Add it to the report, if there is one. */
void report_speed_json(cJSON *root, const struct train_record *);

#endif
