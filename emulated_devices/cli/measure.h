/* measure.h -- wall-clock time of this machine, and the middle of several measurements. */
#ifndef ORRERY_CLI_MEASURE_H
#define ORRERY_CLI_MEASURE_H

/** Seconds of a monotonic clock. */
double measure_now(void);

/** The middle of n values, or the mean of the two in the middle; sorts them.  n >= 1. */
double measure_median(double *x, int n);

#endif
