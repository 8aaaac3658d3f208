/* load.h -- weights from the slow tier to every device of a group, in two ways:
 * what bandwidth-centric partitioning gains. */
#ifndef ORRERY_LOAD_H
#define ORRERY_LOAD_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/tier.h"

/* One unit's weights.  Each device has a home of its own: of its part, or on the owner of all of them. */
struct load {
    struct group *group;
    struct tier *tier;
    struct tensor home;
    struct tensor whole;                /* where all of them go, on every device; a multiple of the group's size */
    picoseconds read;                   /* virtual time at which this device has read its home */
};

/**
 * Every device reads its part, over its own link to the tier; then they gather each other's.
 * Collective over the group.  The compute stream waits.  @return OK, ERR_FILE, ERR_MEMORY or ERR_COMM.
 * Source: S. Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857, section on bandwidth-centric partitioning.
 */
enum error_code load_in_parts(struct load *, struct error *);

/** One device reads all of them, over its link alone, and broadcasts.  Otherwise the same. */
enum error_code load_by_owner(struct load *, int owner, struct error *);

#endif
