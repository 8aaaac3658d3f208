/* shortest.c -- the shortest job that fits is next, and keeps its devices until it ends.  Its time is known: it is its
 * plan's.  schedulers.c lists it.  Errors: ERR_MEMORY, those of prices. */
#include "emulated_devices/cluster/scheduler.h"
#include <stdlib.h>
#include <string.h>

static enum error_code shortest_decide(struct scheduling *scheduling, struct error *err)
{
    const int n = scheduling->count;
    struct active_job **const at = malloc((size_t)(n + 1) * sizeof *at);
    enum error_code e = at ? OK : fail(err, ERR_MEMORY, "no memory to order %d jobs", n);
    for (int i = 0; i < n && !e; i++) {
        int64_t time;
        at[i] = scheduling->at[i];
        if (at[i]->key > 0) continue;                   /* a job that waits takes what it took */
        e = scheduling_time(scheduling, at[i], at[i]->job->devices, pricing_top(scheduling->pricing), &time, err);
        if (!e) at[i]->key = (double)time;
    }
    if (!e) scheduling_sort(at, n);
    if (!e) e = scheduling_start(scheduling, at, n, true, err);
    free(at);
    return e;
}

const struct scheduler scheduler_shortest = { .name = "shortest", .what = "the shortest job that fits, until it ends",
                                              .conserves = true, .decide = shortest_decide };
