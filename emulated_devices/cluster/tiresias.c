/* tiresias.c -- queues by attained service: a job falls to the next queue when its devices times its time reach a
 * limit, and queues are served in order.  Inside a queue jobs that run come first, then those that came first.  No
 * job's length need be known.  schedulers.c lists it.  Errors: ERR_MEMORY.
 *
 * Source  J. Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019: the discretized
 *         two-dimensional least attained service, with the limits of its simulator.  There the next fall is foreseen at
 *         (limit - time) / devices, which is late; here at the time when devices times time are the limit.  Jobs are
 *         not raised again.
 */
#include "emulated_devices/cluster/scheduler.h"
#include <stdlib.h>

/* Device milliseconds. */
static const int64_t limits[] = { 3250000, 7200000 };
enum { LIMITS = sizeof limits / sizeof *limits };

static int level_of(int64_t served)
{
    int level = 0;
    while (level < LIMITS && served >= limits[level]) level++;
    return level;
}

static enum error_code tiresias_decide(struct scheduling *scheduling, struct error *err)
{
    const int n = scheduling->count;
    struct active_job **const at = malloc((size_t)(n + 1) * sizeof *at);
    if (at == NULL) return fail(err, ERR_MEMORY, "no memory to order %d jobs", n);
    for (int i = 0; i < n; i++) {
        struct active_job *const a = at[i] = scheduling->at[i];
        a->level = level_of(a->served);
        a->key = 2 * a->level + (a->now.devices == 0);
    }
    scheduling_sort(at, n);
    scheduling_share(scheduling, at, n);
    for (int i = 0; i < n; i++) {
        const int devices = at[i]->next.devices;
        if (devices == 0 || at[i]->level == LIMITS) continue;
        const int64_t falls = scheduling->now + (limits[at[i]->level] - at[i]->served + devices - 1) / devices;
        if (falls < scheduling->wake) scheduling->wake = falls;
    }
    free(at);
    return OK;
}

const struct scheduler scheduler_tiresias = {
    .name = "tiresias", .what = "queues by devices times time so far, the least served queue first",
    .source = "Tiresias, NSDI 2019", .moves = true, .conserves = true, .decide = tiresias_decide,
};
