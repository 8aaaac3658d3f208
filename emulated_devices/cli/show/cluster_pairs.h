/* cluster_pairs.h -- further parts of `orrery show cluster`: what limits a pair of devices, and how long an all-reduce
 * takes.  cluster.c calls these functions. */
#ifndef ORRERY_CLUSTER_PAIRS_H
#define ORRERY_CLUSTER_PAIRS_H

#include "emulated_devices/device/cluster.h"
#include "ref/error.h"

/** Print the links that devices share, and for pairs of each kind what limits a message that is alone.
 *  @return OK or ERR_MEMORY. */
enum error_code show_pairs(const struct cluster *, struct error *);

/** Print the time of an all-reduce of 1 GiB on 8, 64 and 72 devices: by closed form, by the clock, and with the links
 *  that devices share.  @return OK, or as attempt_times. */
enum error_code show_allreduce(const struct cluster *, struct error *);

#endif
