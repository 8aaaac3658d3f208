/* report_budget.h -- what a whole training takes if each step is as long as the planned one: time, energy and money.
 *
 * Callers: run/plan.c prints it, run/report/report_json.c writes it; report_speed.c fills in struct training.
 */
#ifndef ORRERY_REPORT_BUDGET_H
#define ORRERY_REPORT_BUDGET_H

#include "emulated_devices/device/cluster.h"
#include <cjson/cJSON.h>
#include <stdio.h>

/* The training, and one of its steps. */
struct training {
    uint64_t tokens;                    /* of --tokens; 0: nobody asks */
    double step_tokens, step_seconds;   /* of each step */
    int devices;
    const struct cluster *cluster;      /* which says what a device draws and costs; borrowed */
};

/** Print the steps, days, device hours, energy and dollars of a training, a line each; nothing if nobody asks.  Local.
 *  Energy and dollars need a cluster that states watts and cents ("costs", docs/plans/virtual_clock.md). */
void report_budget_print(FILE *, const struct training *);

/** Add the same numbers as "training", in tokens, seconds, hours, joules and US dollars; nothing if nobody asks. */
void report_budget_json(cJSON *root, const struct training *);

#endif
