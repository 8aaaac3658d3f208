/* backfill.c -- first come, first served, but later jobs may start if that delays no start of the first one that waits
 * (EASY).  The first one gets a reservation: the block that is free soonest if all that run end when their plans say.
 * schedulers.c lists it.  Errors: ERR_MEMORY, those of prices.
 *
 * Source  D. Lifka, "The ANL/IBM SP scheduling system", 1995, doi:10.1007/3-540-60153-8_35
 */
#include "emulated_devices/cluster/scheduler.h"
#include <stdlib.h>

/* A job that runs, and when it ends. */
struct ending { int64_t at; const struct active_job *of; };

static int by_end(const void *a, const void *b)
{
    const struct ending *const x = a, *const y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->of->number > y->of->number) - (x->of->number < y->of->number);
}

/* When a block is free for the job that waits first, and where. */
struct reservation { int64_t from; int place; };

static enum error_code list_endings(const struct scheduling *scheduling, struct ending *ending, int *endings,
                                    struct error *err)
{
    enum error_code e = OK;
    *endings = 0;
    for (int i = 0; i < scheduling->count && !e; i++) {
        const struct active_job *const a = scheduling->at[i];
        const int devices = a->next.devices;
        int64_t time;
        if (devices == 0) continue;
        e = scheduling_time(scheduling, a, devices, a->next.clock, &time, err);
        /* A job that moves now, or starts again, begins its steps at `since`. */
        const int64_t from = a->since > scheduling->now ? a->since : scheduling->now;
        if (!e) ending[(*endings)++] = (struct ending){ from + time, a };
    }
    if (!e) qsort(ending, (size_t)*endings, sizeof *ending, by_end);
    return e;
}

/* Let jobs end, one after another, until a block is free. */
static struct reservation reserve(struct buddy *later, const struct ending *ending, int endings, int size)
{
    struct reservation r = { INT64_MAX, -1 };
    for (int i = 0; i < endings; i++) {
        const struct allocation *const a = &ending[i].of->next;
        buddy_give(later, a->devices, a->place);
        r.place = buddy_take(later, size);
        if (r.place >= 0) return r.from = ending[i].at, r;
    }
    return r;
}

/* Start later jobs in blocks that are not reserved, or that they leave before. */
static enum error_code fill(struct scheduling *scheduling, int first, struct buddy *room,
                            const struct reservation *reservation, struct error *err)
{
    const int top = pricing_top(scheduling->pricing), reserved = scheduling->at[first]->job->devices;
    for (int i = first + 1; i < scheduling->count && room->free > 0; i++) {
        struct active_job *const a = scheduling->at[i];
        int64_t time;
        if (a->now.devices > 0 || room->largest[1] < a->job->devices) continue;
        const enum error_code e = scheduling_time(scheduling, a, a->job->devices, top, &time, err);
        if (e) return e;
        const bool leaves = reservation->place < 0 || scheduling->now + time <= reservation->from;
        const int place = leaves ? buddy_take(room, a->job->devices)
                                 : buddy_take_beside(room, a->job->devices, reservation->place, reserved);
        if (place >= 0) a->next = (struct allocation){ a->job->devices, top, place };
    }
    return OK;
}

static enum error_code backfill_decide(struct scheduling *scheduling, struct error *err)
{
    const int n = scheduling->count;
    struct ending *const ending = malloc((size_t)(n + 1) * sizeof *ending);
    struct buddy room = { .largest = NULL }, later = { .largest = NULL };
    int first = 0, endings;
    enum error_code e = ending ? OK : fail(err, ERR_MEMORY, "no memory for the ends of %d jobs", n);
    if (!e) e = scheduling_start(scheduling, scheduling->at, n, false, err);
    while (first < n && scheduling->at[first]->next.devices > 0) first++;
    if (!e && first < n) e = buddy_open(&room, scheduling->room->devices, err);
    if (!e && first < n) e = buddy_open(&later, scheduling->room->devices, err);
    if (!e && first < n) {
        buddy_copy(&room, scheduling->room);
        for (int i = 0; i < n; i++)
            if (scheduling->at[i]->next.devices > scheduling->at[i]->now.devices)
                buddy_take_at(&room, scheduling->at[i]->next.devices, scheduling->at[i]->next.place);
        buddy_copy(&later, &room);
        e = list_endings(scheduling, ending, &endings, err);
        if (!e) {
            const struct reservation r = reserve(&later, ending, endings, scheduling->at[first]->job->devices);
            e = fill(scheduling, first, &room, &r, err);
        }
    }
    buddy_close(&room), buddy_close(&later);
    free(ending);
    return e;
}

const struct scheduler scheduler_backfill = {
    .name = "backfill", .what = "first come, first served; later jobs fill gaps if they delay nobody",
    .source = "EASY, doi:10.1007/3-540-60153-8_35", .decide = backfill_decide,
};
