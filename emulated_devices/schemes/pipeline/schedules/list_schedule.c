/* list_schedule.c -- list scheduling of forwards and backwards. */
#include "emulated_devices/schemes/pipeline/schedules/list_schedule.h"
#include <stdlib.h>
#include <string.h>

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
static int comes_by(const struct schedule *s, int device, int chunk, int m)
{
    const int stage = s->stage_of[device][chunk];
    for (; m < s->micros; m++) {
        const struct place p = place_of(s, m, stage);
        if (p.device == device && p.chunk == chunk) break;
    }
    return m;
}

/* The time when the action could start, or -1 if its inputs are not ready. */
static int64_t ready(const struct lists *l, struct candidate c)
{
    const struct schedule *s = l->s;
    const int stage = s->stage_of[c.device][c.chunk], M = s->micros, at = c.device * s->chunks + c.chunk;
    const struct place from = c.backward ? place_after(s, c.micro, stage) : place_before(s, c.micro, stage);
    int64_t start = l->clock[c.device];
    /* A device holds the activations of at most `limit` microbatches. */
    if (!c.backward && l->held[at] >= l->limit[at]) return -1;
    /* A backward needs its own forward. */
    if (c.backward && l->end[0][stage * M + c.micro] < 0) return -1;
    if (from.device < 0) return start;
    const int64_t end = l->end[c.backward][s->stage_of[from.device][from.chunk] * M + c.micro];
    if (end < 0) return -1;
    const int64_t there = end + (from.device != c.device ? l->comm : 0);
    return there > start ? there : start;
}

static bool better(struct candidate a, struct candidate b)
{
    if (a.start != b.start) return a.start < b.start;
    if (a.backward != b.backward) return a.backward < b.backward;
    return a.micro < b.micro;
}

static bool choose(const struct lists *l, struct candidate *best)
{
    const struct schedule *s = l->s;
    best->start = -1;
    for (int d = 0; d < s->devices; d++)
        for (int c = 0; c < s->chunks; c++)
            for (int backward = 0; backward < 2; backward++) {
                struct candidate k = { 0, d, c, backward, l->next[backward][d * s->chunks + c] };
                if (k.micro >= s->micros) continue;
                k.start = ready(l, k);
                /* The action that can start first wins; among equals forwards, then lower microbatches. */
                if (k.start >= 0 && (best->start < 0 || better(k, *best))) *best = k;
            }
    return best->start >= 0;
}

static void perform(struct lists *l, struct candidate k)
{
    struct schedule *s = l->s;
    const int at = k.device * s->chunks + k.chunk, stage = s->stage_of[k.device][k.chunk];
    l->clock[k.device] = k.start + l->cost[k.backward];
    l->end[k.backward][stage * s->micros + k.micro] = l->clock[k.device];
    /* A forward holds activations until its backward. */
    l->held[at] += k.backward ? -1 : 1;
    l->next[k.backward][at] = comes_by(s, k.device, k.chunk, k.micro + 1);
    schedule_put(s, k.device, k.backward ? BACKWARD : FORWARD, k.micro, k.chunk);
}

enum error_code list_schedule(struct schedule *s, const struct schedule_request *q, const int *limit, struct error *err)
{
    const size_t cells = (size_t)s->stages * (size_t)s->micros, places = (size_t)s->devices * (size_t)s->chunks;
    struct lists l = { .s = s, .limit = limit, .comm = q->communication,
                       .cost = { q->forward, q->backward_input + q->backward_weight } };
    if (l.cost[0] == 0 && l.cost[1] == 0) l.cost[0] = 1, l.cost[1] = 2;
    int64_t *times = malloc((2 * cells + (size_t)s->devices) * sizeof *times);
    int *counts = calloc(3 * places, sizeof *counts);
    enum error_code code = OK;
    if (times == NULL || counts == NULL) code = fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", s->name);
    else {
        memset(times, -1, 2 * cells * sizeof *times);
        l.end[0] = times;
        l.end[1] = times + cells;
        l.clock = times + 2 * cells;
        for (int d = 0; d < s->devices; d++) l.clock[d] = 0;
        l.next[0] = counts;
        l.next[1] = counts + places;
        l.held = counts + 2 * places;
        for (int d = 0; d < s->devices; d++)
            for (int c = 0; c < s->chunks; c++)
                l.next[0][d * s->chunks + c] = l.next[1][d * s->chunks + c] =
                    s->stage_of[d][c] < 0 ? s->micros : comes_by(s, d, c, 0);
        struct candidate k;
        while (choose(&l, &k)) perform(&l, k);
    }
    free(times);
    free(counts);
    return code;
}
