/* powerflow.h -- the growth of jobs under a budget of energy, on numbers alone: what powerflow.c does at each decision,
 * and the best that any choice could do, for tests and claims.
 *
 * A choice of a job has a number of devices and a clock rate; of each the time that the job still takes and the energy
 * are known.  Each job begins with its leanest choice on its fewest devices.  Then the job grows whose growth has the
 * largest
 *
 *     (dJCT / JCT) / (dE / E)
 *
 * to twice the devices or to the next clock rate, as long as devices are left and all energy together is within the
 * budget.  Growth that breaks the budget is passed over, and another may still fit.  The ratio has no scale: how much a
 * job still has to do plays no part in it.
 *
 * Source  D. Gu et al., "Energy-efficient GPU clusters scheduling for deep learning" (PowerFlow), arXiv:2304.06381,
 *         algorithm 1, as a public port quotes equations 16 and 17
 *
 * growth.c has these functions; powerflow.c, bench/cluster.c and tests call them.
 */
#ifndef ORRERY_CLUSTER_POWERFLOW_H
#define ORRERY_CLUSTER_POWERFLOW_H

#include "emulated_devices/cluster/jobs.h"
#include "emulated_devices/cluster/price.h"

/* Seconds and joules of a step, for each size of devices and clock rate; seconds INFINITY: it does not fit. */
struct growth_table { double seconds[JOB_SIZES][CLOCKS_MOST], joules[JOB_SIZES][CLOCKS_MOST]; };

struct growth_job {
    const struct growth_table *of;      /* the caller's; jobs of a kind have the same */
    double steps;                       /* that are left */
    int first, last;                    /* sizes that it may have: powers of two from 2^first to 2^last */
    int size, clock;                    /* out: chosen; size -1: it waits */
};

/** Let jobs grow; those that come first get their fewest devices first.
 *  @return OK or ERR_MEMORY; also if not even the leanest choices are within the budget. */
enum error_code growth_run(struct growth_job *, int jobs, int devices, int clocks, double budget, struct error *);

/** Try all choices of at most three jobs, all of which get devices.
 *  @return the least sum of times within devices and budget; INFINITY: there is none.  Choices of the best stay. */
double growth_best(struct growth_job *, int jobs, int devices, int clocks, double budget);

/** Sums of what is chosen; time INFINITY if a job waits. */
double growth_time(const struct growth_job *, int jobs);
double growth_energy(const struct growth_job *, int jobs);

#endif
