/* list_schedule.c -- puts forwards and backwards in order by list scheduling.
 *
 * chimera.c and skippipe.c call list_schedule after stages and routes are placed.  All devices are planned together
 * in one loop over time; each turn appends one action.  The only error is ERR_MEMORY.
 */
#include "emulated_devices/schemes/pipeline/schedules/list_schedule.h"
#include <stdlib.h>
#include <string.h>

/* The struct holds the plan so far: when each action ends, when each device is free, and what each chunk does next. */
struct lists {
    struct schedule *s;
    const int *limit;
    int64_t cost[2], comm;              /* forward, backward */
    int64_t *end[2];                    /* [stage * micros + micro] end of the forward, the backward; -1: not done */
    int64_t *clock;                     /* [devices] */
    int *next[2];                       /* [device * chunks + chunk] the first microbatch not yet done */
    int *held;                          /* [device * chunks + chunk] */
};

struct candidate { int64_t start; int device, chunk, backward, micro; };

/* The first microbatch from m on whose route has this chunk. */
static int comes_by(const struct schedule *schedule, int device, int chunk, int m)
{
    const int stage = schedule->stage_of[device][chunk];
    for (; m < schedule->micros; m++) {
        const struct place p = place_of(schedule, m, stage);
        if (p.device == device && p.chunk == chunk) break;
    }
    return m;
}

/* The time when the action could start, or -1 if its inputs are not ready. */
static int64_t ready(const struct lists *lists, struct candidate candidate)
{
    const struct schedule *s = lists->s;
    const int stage = s->stage_of[candidate.device][candidate.chunk], M = s->micros,
        at = candidate.device * s->chunks + candidate.chunk;
    const struct place from = candidate.backward ? place_after(s, candidate.micro, stage)
        : place_before(s, candidate.micro, stage);
    int64_t start = lists->clock[candidate.device];
    /* A device holds the activations of at most `limit` microbatches. */
    if (!candidate.backward && lists->held[at] >= lists->limit[at]) return -1;
    /* A backward needs its own forward. */
    if (candidate.backward && lists->end[0][stage * M + candidate.micro] < 0) return -1;
    if (from.device < 0) return start;
    /* The input is the output of the stage before (forward), or the gradient from the stage after (backward). */
    const int64_t end = lists->end[candidate.backward][s->stage_of[from.device][from.chunk] * M + candidate.micro];
    if (end < 0) return -1;
    const int64_t there = end + (from.device != candidate.device ? lists->comm : 0);
    return there > start ? there : start;
}

static bool better(struct candidate a, struct candidate b)
{
    if (a.start != b.start) return a.start < b.start;
    if (a.backward != b.backward) return a.backward < b.backward;
    return a.micro < b.micro;
}

/* list_schedule_choose compares the next forward and the next backward of every chunk.  The result is false at the
 * end. */
static bool list_schedule_choose(const struct lists *lists, struct candidate *best)
{
    const struct schedule *s = lists->s;
    best->start = -1;
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++)
            for (int backward = 0; backward < 2; backward++) {
                struct candidate k = { 0, d, c, backward, lists->next[backward][d * s->chunks + c] };
                if (k.micro >= s->micros) continue;
                k.start = ready(lists, k);
                /* The action that can start first wins; among equals forwards, then lower microbatches. */
                if (k.start >= 0 && (best->start < 0 || better(k, *best))) *best = k;
            }
    return best->start >= 0;
}

/* list_schedule_perform appends the chosen action to its device's list and advances that device's clock. */
static void list_schedule_perform(struct lists *lists, struct candidate candidate)
{
    struct schedule *s = lists->s;
    const int at = candidate.device * s->chunks + candidate.chunk,
        stage = s->stage_of[candidate.device][candidate.chunk];
    lists->clock[candidate.device] = candidate.start + lists->cost[candidate.backward];
    lists->end[candidate.backward][stage * s->micros + candidate.micro] = lists->clock[candidate.device];
    /* A forward holds activations until its backward. */
    lists->held[at] += candidate.backward ? -1 : 1;
    lists->next[candidate.backward][at] = comes_by(s, candidate.device, candidate.chunk, candidate.micro + 1);
    schedule_put(s, candidate.device, candidate.backward ? BACKWARD : FORWARD, candidate.micro, candidate.chunk);
}

enum error_code list_schedule(struct schedule *schedule, const struct schedule_request *request, const int *limit,
                              struct error *err)
{
    /* times holds end of forwards [stages, M], end of backwards [stages, M], and clocks [P]. */
    const size_t cells = (size_t)schedule->stages * (size_t)schedule->micros,
        places = (size_t)schedule->devices * (size_t)schedule->chunks;
    struct lists l = { .s = schedule, .limit = limit, .comm = request->communication,
                       .cost = { request->forward, request->backward_input + request->backward_weight } };
    /* Without times a backward takes twice a forward. */
    if (l.cost[0] == 0 && l.cost[1] == 0) l.cost[0] = 1, l.cost[1] = 2;
    int64_t *times = malloc((2 * cells + (size_t)schedule->devices) * sizeof *times);
    int *counts = calloc(3 * places, sizeof *counts);
    enum error_code code = OK;
    if (times == NULL || counts == NULL)
        code = fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", schedule->name);
    else {
        /* All bytes 0xff make every end -1: the action is not done. */
        memset(times, -1, 2 * cells * sizeof *times);
        l.end[0] = times;
        l.end[1] = times + cells;
        l.clock = times + 2 * cells;
        /* All devices are free at time 0. */
        for (int d = 0; d < schedule->devices; d++) l.clock[d] = 0;
        l.next[0] = counts;
        l.next[1] = counts + places;
        l.held = counts + 2 * places;
        for (int d = 0; d < schedule->devices; d++)
            for (int c = 0; c < schedule->chunks; c++)
                l.next[0][d * schedule->chunks + c] = l.next[1][d * schedule->chunks + c] =
                    schedule->stage_of[d][c] < 0 ? schedule->micros : comes_by(schedule, d, c, 0);
        /* Each turn of this loop appends one action, until every chunk has done all its microbatches. */
        struct candidate k;
        while (list_schedule_choose(&l, &k)) list_schedule_perform(&l, k);
    }
    free(times);
    free(counts);
    return code;
}
