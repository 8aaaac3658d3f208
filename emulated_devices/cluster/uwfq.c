/* uwfq.c -- user-weighted fair queueing: devices are divided between users, then between a user's jobs, and the job
 * whose turn ends first in that ideal runs first (virtual_time.h).  A job runs for a piece of time, then devices go to
 * whoever is first now: so a long job delays others by a piece at most.  schedulers.c lists it.  Errors: ERR_MEMORY,
 * those of prices.
 *
 * Source  kazemaksOG/spark-benchmark-tool: UWFQ with runtime partitioning.  Its pieces are tasks of a stage, and here a
 *         run of steps; a job that is shorter than a piece is one piece.
 */
#include "emulated_devices/cluster/scheduler.h"
#include "emulated_devices/cluster/virtual_time.h"
#include <stdlib.h>

struct uwfq { struct virtual_time clocks; int known; };        /* jobs that the clocks know: the first of the list */

static enum error_code uwfq_open(struct scheduling *scheduling, struct error *err)
{
    struct uwfq *const own = calloc(1, sizeof *own);
    scheduling->own = own;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for the clocks of users");
    return virtual_time_open(&own->clocks, scheduling->devices, scheduling->pricing->jobs->users, err);
}

static void uwfq_close(struct scheduling *scheduling)
{
    struct uwfq *const own = scheduling->own;
    if (own) virtual_time_close(&own->clocks);
    free(own);
}

/* Tell the clocks of jobs that have come since the last decision.  D stays with the job as its key. */
static enum error_code take_new(struct scheduling *scheduling, struct error *err)
{
    struct uwfq *const own = scheduling->own;
    enum error_code e = OK;
    for (int i = 0; i < scheduling->count && !e; i++) {
        const struct active_job *const a = scheduling->at[i];
        int64_t time;
        if (a->number < own->known) continue;
        e = scheduling_time(scheduling, a, a->job->devices, pricing_top(scheduling->pricing), &time, err);
        if (!e) e = virtual_time_add(&own->clocks, a->job->user, a->number, (double)time * a->job->devices, err);
        own->known = a->number + 1;
    }
    return e;
}

/* A chain that has changed gives its jobs new deadlines; a job that has left the ideal keeps its last one. */
static void take_deadlines(struct scheduling *scheduling)
{
    const struct uwfq *const own = scheduling->own;
    for (int i = 0; i < scheduling->count; i++) {
        struct active_job *const a = scheduling->at[i];
        const double deadline = virtual_time_deadline(&own->clocks, a->job->user, a->number);
        if (deadline >= 0) a->key = deadline;
    }
}

/* Jobs in the middle of a piece keep their devices. */
static int put_pieces_first(struct scheduling *scheduling, struct active_job **at)
{
    int n = 0, kept = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < scheduling->count; i++) {
            struct active_job *const a = scheduling->at[i];
            const int64_t until = a->since + scheduling->setting->quantum;
            const bool keeps = a->now.devices > 0 && until > scheduling->now;
            if (keeps != (pass == 0)) continue;
            if (keeps && until < scheduling->wake) scheduling->wake = until;
            at[n++] = a;
        }
        if (pass == 0) kept = n;
    }
    scheduling_sort(at + kept, n - kept);
    return n;
}

static enum error_code uwfq_decide(struct scheduling *scheduling, struct error *err)
{
    struct uwfq *const own = scheduling->own;
    struct active_job **const at = malloc((size_t)(scheduling->count + 1) * sizeof *at);
    if (at == NULL) return fail(err, ERR_MEMORY, "no memory to order %d jobs", scheduling->count);
    virtual_time_advance(&own->clocks, scheduling->now);
    const enum error_code e = take_new(scheduling, err);
    if (!e) {
        take_deadlines(scheduling);
        const int n = put_pieces_first(scheduling, at);
        scheduling_share(scheduling, at, n);
        bool waits = false;
        for (int i = 0; i < n; i++) waits = waits || at[i]->next.devices == 0;
        if (!waits) scheduling->wake = INT64_MAX;
        else if (scheduling->wake == INT64_MAX) scheduling->wake = scheduling->now + scheduling->setting->quantum;
    }
    free(at);
    return e;
}

const struct scheduler scheduler_uwfq = {
    .name = "uwfq", .what = "users share evenly, then their jobs; pieces of a quantum, by virtual time",
    .source = "UWFQ, kazemaksOG/spark-benchmark-tool", .moves = true, .conserves = true, .open = uwfq_open,
    .close = uwfq_close, .decide = uwfq_decide,
};
