/* cluster.h -- the options of `orrery cluster`, and what they make.  cluster.c and cli/bench/cluster.c call these
 * functions. */
#ifndef ORRERY_CLI_CLUSTER_H
#define ORRERY_CLI_CLUSTER_H

#include "emulated_devices/cluster/planned.h"
#include "emulated_devices/cluster/simulate.h"

/** The parser of plans of jobs: words of `orrery plan`. */
planned_parse_fn cluster_parse_plan;

/* A device draws these parts of its cluster's watts while it computes nothing, and while it has no job: assumed.  The
 * rest goes by the cube of the clock rate. */
enum { STEADY_PERCENT = 40, IDLE_PERCENT = 20 };

/** The power of a device of this cluster. */
struct device_power cluster_power(const struct cluster *, int steady_percent, int idle_percent);

/** Defaults of a simulation: what the options say if nobody gives them. */
struct simulation_setting cluster_usual_setting(void);

#endif
