/* raising.h -- `--raise PERCENT`: after a loss the devices with the most work compute at a higher clock rate.
 *
 * Copies that share a batch unevenly do not end together, nor do stages with unequal numbers of layers.  A device's
 * work is its sequences times its layers.  It computes as many times faster than its usual rate as it has more work
 * than the device with the least, up to the given percentage.  Rates of memory and links stay.
 *
 *     percent = min(100 + PERCENT, 100 work / least work)
 *
 * Source   Z. Wu et al., "ElasWave: an elastic-native system for scalable hybrid-parallel training", 2025,
 *          arXiv:2510.00606: dynamic voltage and frequency scaling of slow stages
 *
 * elastic.c calls these functions, and cli/train/ checks the option.
 */
#ifndef ORRERY_RAISING_H
#define ORRERY_RAISING_H

#include "emulated_devices/plan/plan.h"

/** The clock rate of each device of a plan, in percent of its usual one.  Pure.
 *  @param most     percent that may be added.
 *  @param[out] percent  [devices].
 *  @return OK or ERR_MEMORY. */
enum error_code raising_percents(const struct plan *, int most, int *percent, struct error *);

/** A device's cluster at another clock rate, in percent: it computes by so much faster; memory and links stay. */
struct cluster raising_cluster(const struct cluster *, int percent);

#endif
