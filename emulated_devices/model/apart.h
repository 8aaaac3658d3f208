/* apart.h -- replicas that train apart: the loss and norm over all replicas.
 *
 * Within a step, replicas exchange no part of the model.  The messages for the reported loss and norm are counted as
 * CONTROL.  trainer.c calls these functions.
 */
#ifndef ORRERY_APART_H
#define ORRERY_APART_H

#include "emulated_devices/model/trainer.h"

/* A replica sums these over its devices, then shares them with the other replicas. */
struct replica_sums {
    double loss;                        /* over its labels, with what its routers add to each; becomes the sum */
    double squares;                     /* the squared norm; becomes the mean */
    double lost;                        /* as routers.lost, or INFINITY; becomes the smallest */
};

/**
 * Combine the sums of all replicas.
 * Collective over all devices; counted as CONTROL.
 * @param[in,out] sums  before the call the same on all devices of a replica, after it on all devices.
 * @return OK or ERR_COMM.
 */
enum error_code apart_share(struct trainer *, struct replica_sums *sums, struct error *);

#endif
