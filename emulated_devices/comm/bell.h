/* bell.h -- how a device sleeps until another one has something for it.
 *
 * Looking again and again costs a core that others compute on, and sleeping for a fixed time comes too late.  So each
 * device has a bell in memory that all processes of its machine share: who has sent it something, or has taken what it
 * sent, rings.
 *
 *   who waits    bells_listen   look whether it is there   bells_wait
 *   who sends    MPI_Isend      bells_ring
 *
 * Both first write and then read, so at least one of them sees the other: a ring is not lost.  MPI may still need a
 * look where nobody rings (a transport that copies in parts, a device on another machine); therefore each sleep has an
 * end.
 */
#ifndef ORRERY_BELL_H
#define ORRERY_BELL_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct bell;

struct bells {
    struct bell *bell;                  /* [size], shared; NULL: this device has none */
    int rank, size;
};

/** Share a bell for each device of the machine.  Collective over the communicator; waits give the core away.  Where
 *  there is no shared memory, or device 0 is on another machine, nothing fails: there is no bell. */
void bells_open(struct bells *, MPI_Comm);
void bells_close(struct bells *);

/** Wake this device if it listens; nothing without a bell. */
void bells_ring(const struct bells *, int rank);

/** From now on a ring ends this device's next sleep.  It has a bell. */
void bells_listen(const struct bells *);

/** Sleep until it rings, at most so long.  It has a bell. */
void bells_wait(const struct bells *, int64_t nanoseconds);

#endif
