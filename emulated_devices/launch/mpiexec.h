/* mpiexec.h -- the environment of mpiexec; private to launch.c.  No function returns an error code. */
#ifndef ORRERY_LAUNCH_MPIEXEC_H
#define ORRERY_LAUNCH_MPIEXEC_H

/** In the process that becomes mpiexec: let it start our devices, and on this machine where a job has no other. */
void mpiexec_prepare(void);

/** The batch system from which mpiexec takes its hosts, such as "Slurm"; NULL: none is here. */
const char *mpiexec_manager(void);

#endif
