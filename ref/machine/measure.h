/* measure.h -- time on the clock and of a processor, and the median of several measurements.
 *
 * Benchmarks, launch/ and training measure with these functions.  Times are seconds.  No function returns an error
 * code.
 */
#ifndef ORRERY_MEASURE_H
#define ORRERY_MEASURE_H

/** Seconds of a monotonic clock. */
double measure_now(void);

/** Seconds of processor time, of all threads of this process. */
double measure_processor(void);

/** The median of n values; sorts them.  n >= 1. */
double measure_median(double *x, int n);

/** The median of n values, which stay as they are.  1 <= n <= 1000. */
double measure_median_of(const double *x, int n);

#endif
