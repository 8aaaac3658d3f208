/* cgroup.h -- the control groups of this process, from its own up to the top of what is mounted.
 *
 * Linux limits what a group of processes may use: of cores, of memory, of processes.  A limit of any group above a
 * process's own holds for the process too: Slurm sets those of a job, a container's engine those of the container.  So
 * a reader walks up:
 *
 *     struct cgroup g;
 *     for (bool more = cgroup_own(&g, "", "cpu"); more; more = cgroup_up(&g)) ... g.folder/cpu.cfs_quota_us ...
 *
 * Source    Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/; proc(5): /proc/PID/cgroup and mountinfo.
 * Errors    none
 *
 * cores.c and launch/ read limits with these functions.
 */
#ifndef ORRERY_CGROUP_H
#define ORRERY_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_PATH = 2048 };

struct cgroup {
    char folder[CGROUP_PATH];           /* of the group that the walk has reached */
    size_t top;                         /* characters of the folder at which the walk ends */
};

/**
 * Begin at this process's own group.  Where a container hides the folder's path, the walk has only the container's top.
 * @param root        what stands before every path: "", or in tests a folder with proc/self/cgroup and so on.
 * @param controller  of version 1, such as "cpu"; NULL: version 2, which has all controllers in one tree.
 * @return false: no such tree is mounted.
 */
bool cgroup_own(struct cgroup *, const char *root, const char *controller);

/** Go to the group above.  @return false: that was the top. */
bool cgroup_up(struct cgroup *);

#endif
