/* sharing.h -- the cores of a machine, shared out among the devices that run there.
 *
 * A launcher may bind each device to cores of its own, or none: then all devices of a machine share all that the job
 * has there.  So each device counts the devices of its machine that are bound to at least one core that it is bound to,
 * itself included, and has the quotient: cores / devices, rounded down.  connect.c calls these functions.
 * sharing_make returns NULL without memory.
 */
#ifndef ORRERY_SHARING_H
#define ORRERY_SHARING_H

#include <mpi.h>

struct sharing {
    int cores;                          /* for each device of the job, at least 1: the least quotient of any device */
    int crowd;                          /* so many devices share one of this device's cores, at least 1 */
};

/* Where a device of the job may run. */
struct place;

/** Room for the places of so many devices, for free(); NULL: there is no memory.  Local. */
struct place *sharing_make(int devices);

/** Share out the cores.  Collective over the communicator; waits yield the core.  If MPI fails, each device has one
 *  core and shares none.
 *  @param room    of sharing_make, for all its devices.
 *  @param usable  cores that this process may use: cores_usable() (ref/machine/cores.h). */
struct sharing sharing_find(struct place *room, int usable, MPI_Comm);

#endif
