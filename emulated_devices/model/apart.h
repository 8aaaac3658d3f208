/* apart.h -- replicas that train apart: the loss and norm over all replicas.
 *
 * Within a step, replicas exchange no part of the model.  The messages for the reported loss and norm are counted as
 * CONTROL.
 */
#ifndef ORRERY_APART_H
#define ORRERY_APART_H

#include "emulated_devices/model/trainer.h"

/**
 * Combine the sums of all replicas.
 * Collective over all devices; counted as CONTROL.
 * @param[in,out] sums  [0] loss: becomes the sum over replicas; [1] squared norm: becomes the mean.  Before the call
 *     they are the same on all devices of a replica, after it on all devices.
 * @return OK or ERR_COMM.
 */
enum error_code apart_share(struct trainer *, double sums[2], struct error *);

#endif
