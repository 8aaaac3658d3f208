/* report.h -- what came of the jobs of a cluster, as sums that people compare: times, energy, moves.  cli/cluster/,
 * page.c and claims call these functions.  Only cluster_sums_of can fail. */
#ifndef ORRERY_CLUSTER_REPORT_H
#define ORRERY_CLUSTER_REPORT_H

#include "emulated_devices/cluster/simulate.h"

/* Sums of a simulation.  Times are seconds, from a job's arrival to its end. */
struct cluster_sums {
    double mean, median, p99, small;    /* small: the mean of the half of jobs with the least work */
    double waits;                       /* until a job first has devices, on average */
    double end;                         /* of the last job */
    double used;                        /* share of device time with jobs */
    double joules, device_hours;
    uint64_t bytes;                     /**< Bytes that jobs' changes of devices moved. */
    int changes, pauses, failures;
    double redone;                      /* share of all steps */
};

/** @return OK or ERR_MEMORY. */
enum error_code cluster_sums_of(struct cluster_sums *, const struct simulated *, const struct cluster_jobs *,
                                struct pricing *, struct error *);

/** Seconds from a job's arrival to its end. */
static inline double job_seconds(const struct simulated *out, const struct cluster_jobs *jobs, int job)
{
    return 1e-3 * (double)(out->job[job].ended - jobs->at[job].arrival);
}

/** A line for the sum of all devices' states, which closes: "computing 1 MWh, waiting ..". */
void cluster_states_print(const struct simulated *);

#endif
