/* peer.h -- what MPI's own collectives do with the same call, for comparison only.
 *
 * Nothing in the emulation uses them: they are what `orrery bench collectives` measures beside its own.
 * bench/schemes/collectives_device.c calls these functions.
 */
#ifndef ORRERY_PEER_H
#define ORRERY_PEER_H

#include "emulated_devices/comm/comm.h"

enum peer_way {
    PEER_BLOCKING,                      /* MPI_Allreduce */
    PEER_YIELDING,                     /* MPI_Iallreduce, then MPI_Test and sched_yield until it is complete */
    PEER_WAYS
};

/** Most devices on which blocks of different lengths are passed to MPI. */
enum { PEER_MOST_DEVICES = 1024 };

/* A call; vectors that are scattered or gathered are cut into nearly equal blocks, the longer ones first. */
struct peer_call {
    const void *in;                     /* what this rank gives; shapes as in collective.h */
    void *out;                          /* what this rank gets; of a broadcast the root leaves it alone */
    int64_t count;                      /* elements of the vector; of an all-to-all, for each other device */
    enum dtype dtype;                   /* format of the elements */
    enum reduction reduction;           /* of a reducing operation */
    int root;                           /* of an operation that has a root */
};

/**
 * One collective by MPI, over all devices.
 *
 * Collective.  Not counted, and takes no virtual time.  Sums, products, largest and smallest of fp32, fp64 and
 * integers; not AVERAGE.  Scans are inclusive.
 * in and out are apart; of a broadcast the root's result is its in, since MPI has one buffer.
 * @return OK; ERR_USAGE for what MPI has no equal of, or more elements than its int counts; ERR_COMM.
 */
enum error_code peer_run(struct comm *, enum peer_way, enum operation, const struct peer_call *, struct error *);

#endif
