/* progress.h -- which device waits for which, and detection of deadlocks.
 *
 * A late message is no deadlock: its sender may compute for an hour.  So each device writes into shared memory which
 * device it waits for, and a waiting device reads the entries of all others from time to time.  There is progress if a
 * wait has ended, a wait has begun, or a device that does not wait has used CPU time.  Without progress for the limit,
 * the job cannot end: either devices wait for each other in a ring, or the device that the others wait for does not
 * run.
 *
 * Time counts only in small amounts between two looks, so a job that was stopped for a while (Ctrl-Z, a suspended
 * laptop) is not ended.  connect.c and transport.c call these functions.  No function returns an error code.
 */
#ifndef ORRERY_PROGRESS_H
#define ORRERY_PROGRESS_H

#include "emulated_devices/comm/comm.h"
#include <mpi.h>

/* A device waits for this message. */
struct waiting {
    int device;                         /* world rank */
    bool sending, named;                /* sending: this device sends and the other must receive */
    enum operation operation;           /* of the exchange */
    unsigned axes;                      /* of the group */
    uint32_t number;                    /* of the exchange, or its name */
};

struct place;

struct progress {
    struct place *place;                /* [size], shared; NULL: no shared memory */
    int rank, size;                     /* this device, and all devices of the program */
    double limit;                       /* seconds */
};

/* The least limit in seconds without shared memory: then others may compute without being seen. */
enum { BLIND_LIMIT = 600 };

/* Progress of other devices, as one wait has seen it. */
struct vigil {
    int64_t next, last;                 /* when to look again, and the last look; nanoseconds, 0: never */
    double quiet;                       /* seconds without progress */
    uint64_t seen;                      /* digest of the last look */
};

/** Collective over the communicator; waits yield the core.  @param limit  seconds. */
void progress_open(struct progress *, MPI_Comm, double limit);
void progress_close(struct progress *);

/** Called repeatedly during a wait.  @return whether there was no progress for the limit. */
bool progress_has_ended(struct progress *, struct vigil *, const struct waiting *);

/** The wait is over. */
void progress_goes_on(struct progress *, const struct vigil *);

/** Whether this device is the first to call it: only one device reports a deadlock. */
bool progress_may_speak(struct progress *);

/** Report a deadlock on stderr: a line for each device that waits, then a line that begins with "orrery: " and gives
 *  the reason. */
void progress_explain(const struct progress *, const struct waiting *own);

#endif
