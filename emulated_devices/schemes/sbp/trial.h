/* trial.h -- an assignment carried out by devices of one process, with real numbers, beside one device.
 *
 * cli/show/sbp.c calls it for `orrery show sbp --run`, tests call it on the graphs that they search.
 */
#ifndef ORRERY_SBP_TRIAL_H
#define ORRERY_SBP_TRIAL_H

#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/sbp/assign.h"

struct sbp_trial {
    uint64_t bytes;                     /* sent by all devices together; an element has eight */
    uint64_t messages;                  /* likewise */
    uint64_t peak;                      /* the most bytes that a device had at once */
    picoseconds time;                   /* until the last device is done */
    double off;                         /* the largest distance of a tensor from one device's, norm over norm */
    int farthest;                       /* of this tensor */
    int compared;                       /* tensors that operations made and that are no partial sums */
};

/* Elements of all tensors together that a trial has room for. */
enum { SBP_TRIAL_MOST = 1 << 24 };

/**
 * Draw what enters the graph, compute it on one device and on the mesh, in fp64, and compare every tensor that is made.
 * Local: the devices are a crew (comm/crew.h).
 * @param cluster  for virtual time.
 * @return OK; ERR_PLAN above SBP_TRIAL_MOST elements; ERR_MEMORY; the error of a device.
 */
enum error_code sbp_trial(const struct sbp_graph *, const struct assignment *, const struct cluster *cluster,
                          struct sbp_trial *, struct error *);

#endif
