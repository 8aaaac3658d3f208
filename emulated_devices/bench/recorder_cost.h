/* recorder_cost.h -- what it costs that devices always record their calls.  cli/bench/recorder.c calls. */
#ifndef ORRERY_BENCH_RECORDER_COST_H
#define ORRERY_BENCH_RECORDER_COST_H

#include "emulated_devices/plan/plan.h"

struct recorder_cost {
    double call, message;               /* nanoseconds of a call without messages, and of a message more */
    double calls, messages;             /* of a step on a device, on average */
    double step;                        /* nanoseconds of a step on a device, of a processor */
    double share;                       /* of the step that recording takes, in percent */
};

/** Measure on this machine, on devices of this process with numbers.  Local.
 *  @param plan  checked, with a cluster.  @return OK, or an error of the steps; ERR_MEMORY. */
enum error_code recorder_cost(struct recorder_cost *, const struct plan *plan, int steps, struct error *);

#endif
