/* mpiexec.h -- the environment of mpiexec; for launch.c and process.c.  No function returns an error code. */
#ifndef ORRERY_LAUNCH_MPIEXEC_H
#define ORRERY_LAUNCH_MPIEXEC_H

/* MPICH's files in /dev/shm stay when a device is killed while it starts, and 64 MB of it, Docker's, are too few for 16
 * devices.  UCX has other memory of the same speed that has no name. */
#define UCX_WITHOUT_FILES "^posix"

/** In the process that becomes mpiexec: let it start our devices, and on this machine where a job has no other. */
void mpiexec_prepare(void);

/** The batch system from which mpiexec takes its hosts, such as "Slurm"; NULL: none is here. */
const char *mpiexec_manager(void);

#endif
