/* fit.h -- a model of a job's steps, fitted to a few prices, as PowerFlow fits throughput and energy.
 *
 *     T(n, f) = a + b/(n f) + c/n + d (n-1)/n in a node + e (n-1)/n between nodes + g log2 n
 *     W(n, f) = w + u f^3                                                       watts of a device on average
 *
 * n devices at the part f of the highest clock rate.  b is computing that the clock rate speeds up, c work at the rate
 * of memory, d and e the bytes of sums, g their latencies.  No coefficient is negative; each price has the weight that
 * makes relative errors equal.
 *
 * powerflow.c and bench claims call these functions.
 */
#ifndef ORRERY_CLUSTER_FIT_H
#define ORRERY_CLUSTER_FIT_H

#include "emulated_devices/cluster/price.h"

enum { FIT_TERMS = 6, FIT_POWERS = 2 };

struct job_fit {
    double term[FIT_TERMS], power[FIT_POWERS];
    int node;                           /* devices of a node */
    int points;                         /* prices that it is fitted to */
};

/** Fit a kind of jobs to prices on up to two nodes at the lowest and the highest clock rate.
 *  @param least, most  devices that such jobs may have.
 *  @return OK, also with fewer points than terms; an error of a price; ERR_PLAN if it fits nowhere. */
enum error_code job_fit_make(struct job_fit *, struct pricing *, int kind, int least, int most, struct error *);

/** Seconds of a step; watts of one of its devices. */
double job_fit_seconds(const struct job_fit *, int devices, double clock);
double job_fit_watts(const struct job_fit *, double clock);

/** The mean relative error of seconds at prices on these devices, and the largest.  @return as pricing_step. */
enum error_code job_fit_error(const struct job_fit *, struct pricing *, int kind, int least, int most, double *mean,
                              double *worst, struct error *);

#endif
