/* cost.h -- lesson 04: what cost.c defines.  README.md explains it.
 *
 * A message of B bytes takes alpha + B beta.  Times are in picoseconds, beta
 * in picoseconds per byte.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef COST_H
#define COST_H

#include "course.h"

/** Measure a message: device 0 sends `bytes` bytes to device 1, which sends
 *  them back.  Called by all devices of a group of two or more; others than 0
 *  and 1 do nothing.
 *  @return on device 0 half of the time that it took; 0 on all others. */
double half_round_trip(const struct group *, int64_t bytes);

/** Find alpha and beta by measuring, at whatever sizes.  Called by all
 *  devices; only device 0 has to find them.  On the links of this lesson the
 *  time of a message is exactly alpha + B beta. */
void fit(const struct group *, double *alpha, double *beta);

/** The time of the ring all-reduce of lesson 03 of `bytes` bytes on W devices,
 *  if W divides the vector; 0 for W = 1. */
double ring_time(int W, double bytes, double alpha, double beta);

/** The time of the other one, for W = 2, 4, 8, ..:
 *  {OTHER: recursive doubling.  In each of log2 W steps a device exchanges its
 *  whole vector with another one, and adds|a binomial tree.  In log2 W steps
 *  whole vectors are added up on device 0, and in as many steps the result goes
 *  back}. */
double other_time(int W, double bytes, double alpha, double beta);

/** The smallest whole number of bytes, 1 or more, for which the ring takes
 *  less time than the other; -1: there is none.  Both times as above, as if
 *  any number of bytes could be cut.  W = 2, 4, 8, .. */
int64_t crossover(int W, double alpha, double beta);

#endif
