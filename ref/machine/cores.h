/* cores.h -- how many cores this process may use.
 *
 * A machine's number of cores says little of that: `taskset`, Slurm, `mpiexec -bind-to` and a container's cpuset bind
 * a process to some cores, and a control group may grant a time on cores that is worth fewer.
 *
 * cli/, comm/ and benchmarks ask these functions once, before they start threads or processes.  No function returns
 * an error code.
 */
#ifndef ORRERY_CORES_H
#define ORRERY_CORES_H

#include <stdbool.h>

/**
 * The cores of this process: those that it is bound to, at most as many as its control groups grant, at least 1.  A
 * granted part of a core does not count: of 2.5 cores a process has 2, so that it is never made to wait.
 * Found once, by the first call.
 */
int cores_usable(void);

/** Do the same of a process that is bound to so many cores.  @param root  as of cgroup_own (ref/machine/cgroup.h). */
int cores_of(int bound, const char *root);

enum { CORES_MOST = 8192 };             /* of a machine, as in Linux */

/* A bit for each core of the machine that a process is bound to. */
enum { CORES_WORD = 8 * sizeof(unsigned long) };
struct cores { unsigned long bound[CORES_MOST / CORES_WORD]; };

/** The cores that this process is bound to; all, if the system does not tell. */
void cores_bound(struct cores *);

static inline bool cores_has(const struct cores *cores, int core)
{
    return cores->bound[core / CORES_WORD] >> core % CORES_WORD & 1;
}

#endif
