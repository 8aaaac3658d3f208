/* progress.h -- who waits for whom, and whether anything still goes on.
 *
 * A message that is late is no deadlock: its sender may compute for an hour.  So each device writes in memory that all
 * of them share whom it waits for.  Who waits looks from time to time at all others.  Something goes on when a wait has
 * ended, another one has begun, or a device that does not wait has used time of a core.  When nothing has gone on for
 * the limit, the job cannot end by itself: either devices wait for each other in a ring, or the one that the others
 * wait for does not run.
 *
 * Only looks count, and each for little, so that a job that was stopped for a while (Ctrl-Z, a laptop asleep) is not at
 * fault.
 */
#ifndef ORRERY_PROGRESS_H
#define ORRERY_PROGRESS_H

#include "emulated_devices/comm/comm.h"
#include <mpi.h>

/* What a device waits for. */
struct wait {
    int device;                         /* world rank */
    bool sending, named;                /* for device to receive, or to send */
    enum operation operation;
    unsigned axes;                      /* of the group */
    uint32_t number;                    /* of the exchange, or its name */
};

struct place;

struct progress {
    struct place *place;                /* [size], shared; NULL: nothing is known of the others */
    int rank, size;
    double limit;                       /* seconds */
};

/* Seconds without shared memory, at least: then only time tells, and others may compute. */
enum { BLIND_LIMIT = 600 };

/* One wait's view of the others. */
struct vigil {
    int64_t next, last;                 /* when to look again, and the last look; nanoseconds, 0: never */
    double quiet;                       /* seconds in which nothing has gone on */
    uint64_t seen;                      /* digest of the last look */
};

/** Collective over the communicator; waits give the core away.  @param limit  seconds. */
void progress_open(struct progress *, MPI_Comm, double limit);
void progress_close(struct progress *);

/** To be called again and again during a wait.  @return whether nothing has gone on for the limit. */
bool progress_has_ended(struct progress *, struct vigil *, const struct wait *);

/** The wait is over. */
void progress_goes_on(struct progress *, const struct vigil *);

/** Whether this device is the first to ask: of all that find out, one speaks. */
bool progress_may_speak(struct progress *);

/** Who waits for whom: on stderr a line for every device that waits, then one that begins with "orrery: " and says why
 *  nothing goes on. */
void progress_explain(const struct progress *, const struct wait *own);

#endif
