/* fair.c -- jobs take turns: whoever has had the fewest device seconds is next, and keeps its devices for a quantum.
 * All jobs have the same right, whose they are.  schedulers.c lists it.  Errors: ERR_MEMORY. */
#include "emulated_devices/cluster/scheduler.h"
#include <stdlib.h>

static enum error_code fair_decide(struct scheduling *scheduling, struct error *err)
{
    const int n = scheduling->count;
    struct active_job **const at = malloc((size_t)(n + 1) * sizeof *at);
    if (at == NULL) return fail(err, ERR_MEMORY, "no memory to order %d jobs", n);
    int asks = 0;
    for (int i = 0; i < n; i++) {
        struct active_job *const a = at[i] = scheduling->at[i];
        const int64_t until = a->since + scheduling->setting->quantum;
        const bool keeps = a->now.devices > 0 && until > scheduling->now;
        a->key = keeps ? -1 : (double)a->served;
        if (keeps && until < scheduling->wake) scheduling->wake = until;
        asks += a->job->devices;
    }
    /* Nobody takes turns where all have room. */
    if (asks <= scheduling->devices) scheduling->wake = INT64_MAX;
    else {
        scheduling_sort(at, n);
        if (scheduling->wake == INT64_MAX) scheduling->wake = scheduling->now + scheduling->setting->quantum;
    }
    scheduling_share(scheduling, at, n);
    free(at);
    return OK;
}

const struct scheduler scheduler_fair = { .name = "fair", .what = "turns of a quantum: the least served job is next",
                                          .moves = true, .conserves = true, .decide = fair_decide };
