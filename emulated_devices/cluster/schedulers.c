/* schedulers.c -- the registry of schedulers, and what they share.  simulate.c and cli/cluster/ call.  Errors:
 * ERR_USAGE of a name, ERR_MEMORY, those of prices. */
#include "emulated_devices/cluster/scheduler.h"
#include "ref/io/options.h"
#include <stdlib.h>
#include <string.h>

extern const struct scheduler scheduler_fifo, scheduler_shortest, scheduler_backfill, scheduler_fair,
                              scheduler_tiresias, scheduler_uwfq, scheduler_powerflow;

const struct scheduler *const schedulers[] = {
    &scheduler_fifo,
    &scheduler_shortest,
    &scheduler_backfill,
    &scheduler_fair,
    &scheduler_tiresias,
    &scheduler_uwfq,
    &scheduler_powerflow,
    NULL
};

enum error_code scheduler_find(const struct scheduler **scheduler, const char *name, struct error *err)
{
    enum { MOST = 32 };
    const char *names[MOST];
    size_t n = 0;
    for (int i = 0; schedulers[i] && n < MOST; i++) {
        *scheduler = schedulers[i];
        if (strcmp(schedulers[i]->name, name) == 0) return OK;
        names[n++] = schedulers[i]->name;
    }
    return fail_unknown_name(err, "--scheduler", name, names, n);
}

enum error_code scheduling_time(const struct scheduling *scheduling, const struct active_job *active, int devices,
                                int clock, int64_t *time, struct error *err)
{
    const struct job_price *price;
    const enum error_code e = pricing_step(scheduling->pricing, active->job->kind, devices, clock, &price, err);
    if (!e) *time = price->fits ? price_milliseconds(price, active->left) : INT64_MAX;
    return e;
}

static int by_key(const void *a, const void *b)
{
    const struct active_job *const x = *(struct active_job *const *)a, *const y = *(struct active_job *const *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

void scheduling_sort(struct active_job **at, int count) { qsort(at, (size_t)count, sizeof *at, by_key); }

enum error_code scheduling_start(struct scheduling *scheduling, struct active_job **at, int count, bool skips,
                                 struct error *err)
{
    struct buddy room;
    enum error_code e = buddy_open(&room, scheduling->room->devices, err);
    if (e) return e;
    buddy_copy(&room, scheduling->room);
    for (int i = 0; i < count && room.free > 0; i++) {
        if (at[i]->now.devices > 0) continue;
        const int place = buddy_take(&room, at[i]->job->devices);
        if (place < 0 && !skips) break;
        if (place >= 0)
            at[i]->next = (struct allocation){ at[i]->job->devices, pricing_top(scheduling->pricing), place };
    }
    buddy_close(&room);
    return OK;
}

void scheduling_share(struct scheduling *scheduling, struct active_job **at, int count)
{
    int left = scheduling->devices;
    for (int i = 0; i < count; i++) {
        const int asks = at[i]->job->devices;
        if (asks > left) at[i]->next = (struct allocation){ 0, 0, -1 };
        else {
            const bool keeps = at[i]->now.devices == asks;
            at[i]->next = keeps ? at[i]->now : (struct allocation){ asks, pricing_top(scheduling->pricing), -1 };
            left -= asks;
        }
    }
}
