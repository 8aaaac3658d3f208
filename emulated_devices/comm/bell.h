/* bell.h -- how a device sleeps until another device has something for it.
 *
 * Polling uses a core that other devices need, and a sleep of fixed length ends too late.  So each device has a bell in
 * memory that all processes of its machine share.  A device that has sent a message, or has received one, rings the
 * bell of its peer.
 *
 *   receiver   bells_listen   look whether it is there   bells_wait
 *   sender     MPI_Isend      bells_ring
 *
 * A device that waits for several messages sleeps until as many rings have come: being woken for each would take the
 * core from those that still have to send theirs.
 *
 * Both sides write first and read then, so at least one sees the other: no ring is lost.  MPI may need a call where no
 * bell rings (a transport that copies in parts, a device on another machine), so each sleep has a limit.  connect.c,
 * letters.c and transport.c call these functions.  No function returns an error code.
 */
#ifndef ORRERY_BELL_H
#define ORRERY_BELL_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

struct bell;

struct bells {
    struct bell *bell;                  /* [size], shared; NULL: no shared memory */
    int rank, size;                     /* this device, and all devices of the program */
    int crowd;                          /* so many devices that ring for each other share a core: patience.h; 0 and 1:
                                         * each has a core */
};

/** Make a bell for each device of the machine.  Collective over the communicator; waits yield the core.  Without shared
 *  memory, or with device 0 on another machine, there are no bells, which is no error. */
void bells_open(struct bells *, MPI_Comm);
void bells_close(struct bells *);

/** Wake this device if it listens, and this is the last ring that it sleeps for.  Without bells it does nothing. */
void bells_ring(const struct bells *, int rank);

/** From now on so many rings, at least one, end this device's next sleep.  It must have a bell. */
void bells_listen(const struct bells *, int rings);

/** Sleep until this device's bell has rung as often as that, at most so long.  It must have a bell. */
void bells_wait(const struct bells *, int64_t nanoseconds);

#endif
