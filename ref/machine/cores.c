/* cores.c -- the cores that this process may use, by its binding and by its control groups.
 *
 * cli/, comm/ and benchmarks call this file.  No function here can fail: without an answer of the system, all cores
 * count.
 */
#include "ref/machine/cores.h"
#include "ref/machine/cgroup.h"
#include "ref/machine/system.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

/* The first numbers of a group's file.  @return how many there are; of "max 100000" none. */
static int read_numbers(const struct cgroup *cgroup, const char *file, double number[2])
{
    char path[CGROUP_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", cgroup->folder, file);
    FILE *f = fopen(path, "r");
    const int n = f != NULL ? fscanf(f, "%lf %lf", &number[0], &number[1]) : 0;
    if (f != NULL) fclose(f);
    return n > 0 ? n : 0;
}

/* Microseconds on cores in each period of microseconds, in version 2 and in version 1; INFINITY: as many as there are.
 * Version 1 has -1 where there is no limit. */
static double granted_to_group(const struct cgroup *cgroup, bool version_1)
{
    double quota[2] = { -1, 0 }, period[2] = { 0, 0 };
    const bool told = version_1 ? read_numbers(cgroup, "cpu.cfs_quota_us", quota) > 0 &&
                                      read_numbers(cgroup, "cpu.cfs_period_us", period) > 0
                                : read_numbers(cgroup, "cpu.max", quota) == 2;
    if (!version_1) period[0] = quota[1];
    return told && quota[0] > 0 && period[0] > 0 ? quota[0] / period[0] : (double)INFINITY;
}

static double granted(const char *root)
{
    static const char *const tree[] = { NULL, "cpu" };
    double least = INFINITY;
    struct cgroup g;
    for (int i = 0; i < 2; i++)
        for (bool more = cgroup_own(&g, root, tree[i]); more; more = cgroup_up(&g))
            /* A limit holds for all groups below it, so the least on the way up counts. */
            least = fmin(least, granted_to_group(&g, i == 1));
    return least;
}

/* A grant of less than a core is still one. */
int cores_of(int bound, const char *root)
{
    const double least = fmin(bound, floor(granted(root)));
    return least < 1 ? 1 : (int)least;
}

static int bound_to(void)
{
#if defined(_OPENMP)
    return omp_get_num_procs();
#else
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* The answer is asked for once in a process. */
int cores_usable(void)
{
    static int found;
    if (found == 0) found = cores_of(bound_to(), "");
    return found;
}

/* Without an answer the process may use every core. */
void cores_bound(struct cores *cores)
{
    if (!system_bound(cores->bound, sizeof cores->bound)) memset(cores, 0xff, sizeof *cores);
}
