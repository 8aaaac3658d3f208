/* apart.h -- what replicas that train apart mean for a trainer: which labels and which norm count, and which devices
 * learn them.
 *
 * Within a step nothing of the model passes between replicas.  What is reported about all of them is agreed on as
 * CONTROL.
 */
#ifndef ORRERY_APART_H
#define ORRERY_APART_H

#include "emulated_devices/model/trainer.h"

/** The group of all devices that work on this one's replica, along every axis.  Local.  @return OK or ERR_MEMORY. */
enum error_code apart_group(struct group *, const struct trainer *, struct error *);

/**
 * From one replica's sums to all replicas'.
 * Collective over all devices; counted as CONTROL.
 * @param[in,out] sums  loss, which is added up, and squared norm, of which this makes the mean.  The same within a
 *     replica, then everywhere.
 * @return OK or ERR_COMM.
 */
enum error_code apart_share(struct trainer *, double sums[2], struct error *);

#endif
