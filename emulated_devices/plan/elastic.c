/* elastic.c -- gives each further device to the task whose replicas have the most samples.  The callers are
 * cli/show/elastic.c and test_elastic.c; the only error is ERR_USAGE. */
#include "emulated_devices/plan/elastic.h"

/* The largest batch of a task's replicas is batch / replicas, rounded up. */
static int64_t elastic_share_of(int64_t batch, int replicas) { return (batch + replicas - 1) / replicas; }

/* This finds the task whose replicas have the most samples; of equal tasks the first. */
static int heaviest(const int64_t *batch, int tasks, const int *replicas)
{
    int found = 0;
    for (int t = 1; t < tasks; t++)
        if (elastic_share_of(batch[t], replicas[t]) > elastic_share_of(batch[found], replicas[found])) found = t;
    return found;
}

enum error_code elastic_replicas(const int64_t *batch, int tasks, int devices, int *replicas, struct error *err)
{
    if (devices < tasks)
        return fail(err, ERR_USAGE, "%d are fewer than the %d tasks", devices, tasks);
    for (int t = 0; t < tasks; t++) replicas[t] = 1;
    for (int d = tasks; d < devices; d++) replicas[heaviest(batch, tasks, replicas)]++;
    return OK;
}

int64_t elastic_most(const int64_t *batch, int tasks, const int *replicas)
{
    const int t = heaviest(batch, tasks, replicas);
    return elastic_share_of(batch[t], replicas[t]);
}
