/* shared.h -- memory that the devices of one machine share.  It has no name, so nothing is left of it
 * however they end.  bell.c and progress.c call these functions.  shared_open returns NULL where there is no such
 * memory. */
#ifndef ORRERY_SHARED_H
#define ORRERY_SHARED_H

#include <mpi.h>
#include <stddef.h>

/**
 * Zeroed memory, the same for all devices on device 0's machine.  Collective over the communicator; waits give the core
 * away.
 * @return NULL where there is none: on another machine than device 0's, or if device 0 cannot make it.
 */
void *shared_open(MPI_Comm, size_t bytes);

/** @param memory  of shared_open, with the same bytes; NULL does nothing. */
void shared_close(void *memory, size_t bytes);

#endif
