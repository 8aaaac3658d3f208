/* load.h -- loads weights from the slow tier to every device of a group, in two ways, to measure the gain of
 * bandwidth-centric partitioning.  bench/offload/offload.c calls these functions. */
#ifndef ORRERY_LOAD_H
#define ORRERY_LOAD_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/tier.h"

/* A load has one unit's weights.  `home` is on the slow tier: this device's part of the weights, or on the owner
 * all. */
struct load {
    struct group *group;                /* devices that share the unit's weights */
    struct tier *tier;                  /* where homes are */
    struct tensor home;                 /* memory on the tier, not on the device */
    struct tensor whole;                /* the destination on every device; a multiple of the group's size */
    picoseconds read;                   /* virtual time at which this device has read its home */
};

/**
 * Every device reads its part over its own link to the tier; then all parts are gathered.
 * Collective over the group.  The compute stream waits.  @return OK, ERR_FILE, ERR_MEMORY or ERR_COMM.
 * Source: S. Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857, section on bandwidth-centric partitioning.
 */
enum error_code load_in_parts(struct load *, struct error *);

/** The owner reads all weights over its own link and broadcasts these.  Otherwise as load_in_parts. */
enum error_code load_by_owner(struct load *, int owner, struct error *);

#endif
