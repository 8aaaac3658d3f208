/* timing.c -- an event-driven clock for schedules. */
#include "emulated_devices/schemes/pipeline/timing.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <stdlib.h>
#include <string.h>

struct clock_state {
    const struct schedule *s;
    const struct schedule_times *times;
    struct timing *t;
};

static int64_t duration(const struct clock_state *k, int device, struct action a)
{
    const int stage = schedule_stage(k->s, device, a);
    switch (a.kind) {
    case FORWARD:         return k->times->forward[stage];
    case BACKWARD:        return k->times->backward_input[stage] + k->times->backward_weight[stage];
    case BACKWARD_INPUT:  return k->times->backward_input[stage];
    case BACKWARD_WEIGHT: return k->times->backward_weight[stage];
    case UPDATE:          return k->times->update;
    default:              return 0;
    }
}

static void visit(void *context, int device, int index, int from)
{
    struct clock_state *k = context;
    struct timing *t = k->t;
    const struct action a = k->s->actions[device][index];
    /* An action begins when the one before it has ended; a receive ends when its message is there. */
    const int64_t now = index > 0 ? t->end[device][index - 1] : 0, cost = duration(k, device, a);
    int64_t end = now + cost;
    if (from >= 0 && t->end[a.peer][from] + k->times->communication > end)
        end = t->end[a.peer][from] + k->times->communication;
    t->start[device][index] = now;
    t->end[device][index] = end;
    t->busy[device] += cost;
}

/* A device's span begins and ends with a computation: waiting before the first one does not count. */
static void summarise(struct timing *t, const struct schedule *s)
{
    int64_t most_busy = 0;
    for (int d = 0; d < s->devices; d++) {
        int first = -1, last = -1;
        for (int i = 0; i < s->count[d]; i++)
            if (!action_is_message(s->actions[d][i].kind)) {
                if (first < 0) first = i;
                last = i;
            }
        if (first < 0) continue;
        const int64_t span = t->end[d][last] - t->start[d][first];
        if (span > t->span) t->span = span;
        if (t->end[d][last] > t->makespan) t->makespan = t->end[d][last];
        if (t->busy[d] > most_busy) most_busy = t->busy[d];
    }
    t->bubble = t->span > 0 ? 1 - (double)most_busy / (double)t->span : 0;
    t->idle = t->makespan > 0 ? 1 - (double)most_busy / (double)t->makespan : 0;
}

static int64_t **rows(const struct schedule *s)
{
    const size_t P = s->devices > 0 ? (size_t)s->devices : 1;
    size_t total = 1;
    for (int d = 0; d < s->devices; d++) total += (size_t)s->count[d];
    /* One block for all devices: row[0] is its beginning, which timing_free frees. */
    int64_t **row = calloc(P, sizeof *row), *block = calloc(total, sizeof *block);
    if (row == NULL || block == NULL) {
        free(row);
        free(block);
        return NULL;
    }
    for (int d = 0; d < s->devices; block += s->count[d++]) row[d] = block;
    return row;
}

enum error_code timing_make(struct timing *t, const struct schedule *s, struct error *err)
{
    memset(t, 0, sizeof *t);
    t->devices = s->devices;
    t->busy = calloc((size_t)s->devices, sizeof *t->busy);
    t->start = rows(s);
    t->end = rows(s);
    if (t->busy != NULL && t->start != NULL && t->end != NULL) return OK;
    timing_free(t);
    return fail(err, ERR_MEMORY, "schedule %s: no memory to time it", s->name);
}

void timing_summarise(struct timing *t, const struct schedule *s)
{
    int64_t first = INT64_MAX;
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++)
            if (!action_is_message(s->actions[d][i].kind) && t->start[d][i] < first) first = t->start[d][i];
    for (int d = 0; d < s->devices; d++) {
        t->busy[d] = 0;
        for (int i = 0; i < s->count[d]; i++) {
            /* Times count from the first computation of any device. */
            t->start[d][i] -= first, t->end[d][i] -= first;
            if (!action_is_message(s->actions[d][i].kind)) t->busy[d] += t->end[d][i] - t->start[d][i];
        }
    }
    summarise(t, s);
}

enum error_code schedule_time(struct timing *t, const struct schedule *s, const struct schedule_times *times,
                              struct error *err)
{
    struct clock_state k = { s, times, t };
    struct walk w = { .s = s, .visit = visit, .context = &k };
    enum error_code code = timing_make(t, s, err);
    if (code == OK) code = walk_through(&w, err);
    for (int d = 0; code == OK && d < s->devices; d++)
        if (w.next[d] < s->count[d])
            code = fail(err, ERR_PLAN, "schedule %s: device %d does not come to its end", s->name, d);
    free(w.next);
    if (code == OK) summarise(t, s);
    else timing_free(t);
    return code;
}

void timing_free(struct timing *t)
{
    if (t->start != NULL) free(t->start[0]);
    if (t->end != NULL) free(t->end[0]);
    free(t->start);
    free(t->end);
    free(t->busy);
    memset(t, 0, sizeof *t);
}

struct schedule_times uniform_times(int stages, int64_t forward, int64_t backward_input, int64_t backward_weight,
                                    int64_t communication, int64_t *room)
{
    for (int t = 0; t < stages; t++) {
        room[t] = forward;
        room[stages + t] = backward_input;
        room[2 * stages + t] = backward_weight;
    }
    return (struct schedule_times){ room, room + stages, room + 2 * stages, communication, 0 };
}

enum error_code schedule_time_evenly(struct timing *t, const struct schedule *s, struct even_times each,
                                     struct error *err)
{
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to time it", s->name);
    struct schedule_times times = uniform_times(s->stages, each.forward, each.backward_input, each.backward_weight,
                                                each.communication, room);
    times.update = each.update;
    const enum error_code e = schedule_time(t, s, &times, err);
    free(room);
    return e;
}
