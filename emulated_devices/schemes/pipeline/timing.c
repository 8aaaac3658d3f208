/* timing.c -- an event-driven clock for schedules.
 *
 * The times come from the caller, such as search/estimate.c and cli/show/schedule.c.  The file
 * draw/timeline.c fills a timing with measured times instead and calls timing_summarise.  The errors are ERR_MEMORY,
 * and ERR_PLAN for a schedule that does not finish.  After an error nothing is left to free.
 */
#include "emulated_devices/schemes/pipeline/timing.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <stdlib.h>
#include <string.h>

/* walk_through hands this context to visit() at every action. */
struct clock_state {
    const struct schedule *s;
    const struct schedule_times *times;
    struct timing *t;
};

/* duration gives the time of an action on its device, in the caller's unit.  A message occupies its device for 0. */
static int64_t duration(const struct clock_state *state, int device, struct action action)
{
    const int stage = schedule_stage(state->s, device, action);
    switch (action.kind) {
    case FORWARD:         return state->times->forward[stage];
    case BACKWARD:        return state->times->backward_input[stage] + state->times->backward_weight[stage];
    case BACKWARD_INPUT:  return state->times->backward_input[stage];
    case BACKWARD_WEIGHT: return state->times->backward_weight[stage];
    case UPDATE:          return state->times->update;
    default:              return 0;
    }
}

/* walk_through calls visit for each action, after everything that the action waits for. */
static void visit(void *context, int device, int index, int from)
{
    struct clock_state *k = context;
    struct timing *t = k->t;
    const struct action a = k->s->actions[device][index];
    /* An action begins when the one before it has ended; a receive ends when its message is there. */
    const int64_t now = index > 0 ? t->end[device][index - 1] : 0, cost = duration(k, device, a);
    /* A receive may end later than its own cost (0): end = max(now, end of its send + communication). */
    int64_t end = now + cost;
    if (from >= 0 && t->end[a.peer][from] + k->times->communication > end)
        end = t->end[a.peer][from] + k->times->communication;
    t->start[device][index] = now;
    t->end[device][index] = end;
    /* Only the cost counts as work.  The wait for a message is idle time. */
    t->busy[device] += cost;
}

/* A device's span begins and ends with a computation: waiting before the first one does not count. */
static void summarise(struct timing *timing, const struct schedule *schedule)
{
    int64_t most_busy = 0;
    /* Work is that of the busiest device, not the mean over devices. */
    for (int d = 0; d < schedule->devices; d++) {
        int first = -1, last = -1;
        for (int i = 0; i < schedule->count[d]; i++)
            if (!action_is_message(schedule->actions[d][i].kind)) {
                if (first < 0) first = i;
                last = i;
            }
        /* A device that computes nothing has no span. */
        if (first < 0) continue;
        const int64_t span = timing->end[d][last] - timing->start[d][first];
        if (span > timing->span) timing->span = span;
        if (timing->end[d][last] > timing->makespan) timing->makespan = timing->end[d][last];
        if (timing->busy[d] > most_busy) most_busy = timing->busy[d];
    }
    /* The bubble leaves out fill and drain of the pipeline; `idle` includes both. */
    timing->bubble = timing->span > 0 ? 1 - (double)most_busy / (double)timing->span : 0;
    timing->idle = timing->makespan > 0 ? 1 - (double)most_busy / (double)timing->makespan : 0;
}

/* timing_rows makes a table [devices][count[device]] of zeros.  The result is NULL without memory. */
static int64_t **timing_rows(const struct schedule *schedule)
{
    const size_t P = schedule->devices > 0 ? (size_t)schedule->devices : 1;
    size_t total = 1;
    for (int d = 0; d < schedule->devices; d++) total += (size_t)schedule->count[d];
    /* All devices share a block: row[0] is its beginning, which timing_free frees. */
    int64_t **row = calloc(P, sizeof *row), *block = calloc(total, sizeof *block);
    if (row == NULL || block == NULL) {
        free(row);
        free(block);
        return NULL;
    }
    for (int d = 0; d < schedule->devices; block += schedule->count[d++]) row[d] = block;
    return row;
}

/* All times are 0 after this call, and the caller fills in start and end. */
enum error_code timing_make(struct timing *timing, const struct schedule *schedule, struct error *err)
{
    memset(timing, 0, sizeof *timing);
    timing->devices = schedule->devices;
    timing->busy = calloc((size_t)schedule->devices, sizeof *timing->busy);
    timing->start = timing_rows(schedule);
    timing->end = timing_rows(schedule);
    if (timing->busy != NULL && timing->start != NULL && timing->end != NULL) return OK;
    timing_free(timing);
    return fail(err, ERR_MEMORY, "schedule %s: no memory to time it", schedule->name);
}

void timing_summarise(struct timing *timing, const struct schedule *schedule)
{
    /* The earliest start of a computation, over all devices, becomes time 0. */
    int64_t first = INT64_MAX;
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++)
            if (!action_is_message(schedule->actions[d][i].kind) && timing->start[d][i] < first)
                first = timing->start[d][i];
    for (int d = 0; d < schedule->devices; d++) {
        timing->busy[d] = 0;
        for (int i = 0; i < schedule->count[d]; i++) {
            /* Times count from the first computation of any device. */
            timing->start[d][i] -= first, timing->end[d][i] -= first;
            if (!action_is_message(schedule->actions[d][i].kind))
                timing->busy[d] += timing->end[d][i] - timing->start[d][i];
        }
    }
    summarise(timing, schedule);
}

/* The walk visits actions in an order in which all inputs have their times already. */
enum error_code schedule_time(struct timing *timing, const struct schedule *schedule,
                              const struct schedule_times *times, struct error *err)
{
    struct clock_state k = { schedule, times, timing };
    struct walk w = { .s = schedule, .visit = visit, .context = &k };
    enum error_code code = timing_make(timing, schedule, err);
    if (code == OK) code = walk_through(&w, err);
    /* The walk stops early at a deadlock.  Then some device has actions left. */
    for (int d = 0; code == OK && d < schedule->devices; d++)
        if (w.next[d] < schedule->count[d])
            code = fail(err, ERR_PLAN, "schedule %s: device %d does not come to its end", schedule->name, d);
    free(w.next);
    if (code == OK) summarise(timing, schedule);
    else timing_free(timing);
    return code;
}

void timing_free(struct timing *timing)
{
    if (timing->start != NULL) free(timing->start[0]);
    if (timing->end != NULL) free(timing->end[0]);
    free(timing->start);
    free(timing->end);
    free(timing->busy);
    memset(timing, 0, sizeof *timing);
}

/* room [3, stages] gets F, I and W in this order.  The result points into room, so room must live as long. */
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

/* The tables of times live only as long as this call. */
enum error_code schedule_time_evenly(struct timing *timing, const struct schedule *schedule, struct even_times each,
                                     struct error *err)
{
    int64_t *room = malloc(3 * (size_t)schedule->stages * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to time it", schedule->name);
    struct schedule_times times = uniform_times(schedule->stages, each.forward, each.backward_input,
                                                each.backward_weight, each.communication, room);
    times.update = each.update;
    const enum error_code e = schedule_time(timing, schedule, &times, err);
    free(room);
    return e;
}
