/* cluster.h -- what papers of schedulers of clusters claim, beside what is computed here in simulation.
 * cli/bench/cluster.c calls cluster_claims_add. */
#ifndef ORRERY_BENCH_CLUSTER_H
#define ORRERY_BENCH_CLUSTER_H

#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/cluster/planned.h"
#include "emulated_devices/cluster/simulate.h"

struct cluster_bench {
    struct planned_source *planned;     /* of the machine */
    struct device_power power;
    struct simulation_setting usual;    /* without a scheduler */
};

/** Simulate, and add rows.  Local.  @return OK, or the first failure. */
enum error_code cluster_claims_add(const struct serving_claims *, const struct cluster_bench *, struct error *);

#endif
