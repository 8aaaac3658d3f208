/* farewell.h -- the end of a job on several machines.
 *
 * MPI_Finalize of MPICH 4.0.2 over UCX and TCP often does not return: a process that has closed its connections waits
 * in the process manager's barrier, where it answers nobody, while another one still needs its answer to close the
 * connection between them.  So the devices say goodbye to the process manager themselves: they wait in its barrier with
 * open eyes until all of them are there, so that every message has arrived, and then leave without closing what ends
 * with the process anyway.
 *
 *   device    cmd=barrier_in       the manager, when all are there    cmd=barrier_out
 *   device    cmd=finalize         the manager                        cmd=finalize_ack
 *
 * Source    W. Gropp, E. Lusk, "An interface to support a general process management": PMI-1, as MPICH's simple_pmi.c
 *           and Hydra speak it, on the file descriptor that PMI_FD names.
 * Called    connect.c calls these functions.
 */
#ifndef ORRERY_FAREWELL_H
#define ORRERY_FAREWELL_H

#include <mpi.h>
#include <stdbool.h>

/**
 * Whether the manager has started some processes as those of another host.  MPI reaches these over the network, also
 * where both hosts are names, networks or containers of one machine.  Local.
 * @param size  processes of the job.
 */
bool farewell_has_hosts(int size);

/**
 * Leave the job without MPI_Finalize.  Collective over all processes; no message may be under way.
 * @param comm   on which messages may still have to make progress for others.
 * @param limit  seconds to wait for others, then for the manager.
 * @return whether this process has left; false: nothing was said to a manager, or it does not answer, and MPI_Finalize
 *     is the way.
 */
bool farewell(MPI_Comm comm, double limit);

#endif
