/* family.h -- all processes that a launch has started, directly or indirectly; private to launch.c.  No function
 * returns an error code. */
#ifndef ORRERY_LAUNCH_FAMILY_H
#define ORRERY_LAUNCH_FAMILY_H

#include "emulated_devices/launch/watch.h"
#include <sys/types.h>

/* The processes of one job.  A process whose parent has ended becomes our child (Linux), so none is lost. */
struct family {
    pid_t job;                          /* mpiexec */
    bool job_ended;                     /* mpiexec has ended; then `how` is set */
    int how;                            /* its status from waitpid */
};

/** Before the job is forked: ask to adopt those of its processes whose parent ends. */
void family_adopt(void);

/** Mark the job's environment, and so all its processes, as members of this family. */
void family_mark(pid_t launcher);

/** Remove System V shared memory of devices that were killed before they could mark it for removal.  Call after
 *  family_end. */
void family_sweep(const struct watch *);

/** Whether a process of this machine has the job's mark (Linux). */
bool family_has(long pid);

/** Whether all devices have run on this machine, and have ended: mpiexec has nothing to wait for. */
bool family_is_gone(const struct watch *);

/** Seconds that the job's processes on this machine have computed so far; 0 where the system does not tell. */
double family_seconds(const struct family *);

/** Collect processes that have ended, without waiting. */
void family_reap(struct family *);

/**
 * Wait until no process of the job is left; kill those that take longer.
 * @param patience  seconds until they are killed.
 * @return how many are still left 5 s after that.
 */
int family_end(struct family *, const struct watch *, double patience);

#endif
