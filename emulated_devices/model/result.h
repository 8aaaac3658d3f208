/* result.h -- the few numbers that all devices of a replica sum in a step: the loss, the squared norm, sums of routers.
 *
 * They are summed axis by axis: over tp, then pp, then the copies of the model, always by `one_shot`.  So a device
 * sends to some tens of others, not to thousands, and devices that differ only in dp do the same.
 *
 * With sections the devices of a stage sum first.  Then each device takes the sum of every other stage from the device
 * that is as far along that stage, and adds in the order of stages.  Files of model/ call these functions.
 */
#ifndef ORRERY_RESULT_H
#define ORRERY_RESULT_H

#include "emulated_devices/comm/comm.h"

struct trainer;

enum { RESULT_AXES = 3 };               /* tp, pp, copies along dp and cp */

/* Groups over which losses and norms are summed, one axis after another. */
struct result_groups {
    struct group along[RESULT_AXES];    /* along tp, pp, and over copies; with sections the devices of a stage first */
    struct group between;               /* with sections: all devices, after those of a stage; else of this one */
};

/** Create the groups of this device's replica: of all devices, unless replicas train apart.  Local.
 *  @return OK or ERR_MEMORY; result_close works after both. */
enum error_code result_open(struct result_groups *, const struct trainer *, struct error *);
void result_close(struct result_groups *);

/** Whether this is the replica's device of the lowest rank. */
bool result_is_first(const struct result_groups *);

/** Reduce numbers of all devices of the replica, in place: all get the same bits.  Collective over the replica.
 *  @param x  shape [count], F64.  @return as collective_run. */
enum error_code result_reduce(struct trainer *, double *x, int64_t count, enum reduction, struct error *);

/** Messages, bytes and additions of this device for it. */
struct account result_reduce_cost(const struct trainer *, int64_t count, enum reduction);

#endif
