/* family.h -- all processes that a launch has started, directly or not; private to launch.c. */
#ifndef ORRERY_LAUNCH_FAMILY_H
#define ORRERY_LAUNCH_FAMILY_H

#include "emulated_devices/cli/launch/watch.h"
#include <sys/types.h>

/* The processes of one job.  A process whose parent has ended becomes our child (Linux), so that none is lost. */
struct family {
    pid_t job;                          /* mpiexec */
    bool job_ended;
    int how;                            /* it ended, as waitpid tells */
};

/** Before the job is forked: adopt those of its processes whose parent ends. */
void family_adopt(void);

/** In the environment of the job, and so of all its processes: that they are of this family. */
void family_mark(pid_t launcher);

/** Remove System V's shared memory that a device had made and was killed before it could say that it ends with its
 *  users.  After family_end. */
void family_sweep(const struct watch *);

/** Collect processes that have ended, without waiting. */
void family_reap(struct family *);

/**
 * Wait until no process of the job is left.  Those that take longer are killed.
 * @param patience  seconds until then.
 * @return how many are left all the same, after 5 s more.
 */
int family_end(struct family *, const struct watch *, double patience);

#endif
