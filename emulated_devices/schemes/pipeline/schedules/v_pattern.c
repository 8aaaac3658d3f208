/* v_pattern.c -- repeats a building block, fills in W, then squeezes the schedule.
 *
 * Source    P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 (building blocks,
 *           lifespan and memory) and appendix (squeezing and reordering).
 * Every unit of a device's time line has one action or none.  A block uses memory from its F to its W.  Repeating it
 * every 6 units (F, I and W of two chunks) leaves no free unit in the steady state.  Before and after the steady state
 * there are gaps: actions move into earlier free units, in order of time, if the device then never holds more than the
 * pattern's maximum.
 *
 * v_half.c and v_min.c call make_v_schedule with their pattern.  The errors are ERR_MEMORY and those of
 * schedule_begin and schedule_finish; then the schedule is freed.
 */
#include "emulated_devices/schemes/pipeline/schedules/v_pattern.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { F0, F1, I1, I0, WEIGHT, EMPTY };

struct event { int time; short device; short part; int micro; };

struct line {                           /* of one device */
    unsigned char *unit;                /* [length] the part done in this unit, or EMPTY */
    int *held;                          /* [length] chunks held in this unit */
};

struct v_plan {
    struct schedule *s;
    struct v_pattern (*pattern)(int P, int d);
    int P, M, length, most;             /* most: chunks held at once by the pattern */
    struct line *line;
    int *when;                          /* [(device * 4 + part) * M + micro] unit of F0, F1, I1, I0 */
    struct event *event;                /* of all devices, in order of time */
    int events;
};

static int *when(const struct v_plan *v_plan, int device, int part, int micro)
{
    return &v_plan->when[(device * 4 + part) * v_plan->M + micro];
}

/* Events of one unit are ordered by device, so qsort gives the same order on every machine. */
static int v_pattern_by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    return x->time != y->time ? (x->time > y->time) - (x->time < y->time) : x->device - y->device;
}

/* v_pattern_lay_out puts the pattern of every microbatch m at unit 6 m of every device, without W. Afterwards `event`
 * has all F and I in order of time. */
static void v_pattern_lay_out(struct v_plan *v_plan)
{
    v_plan->events = 0;
    for (int d = 0; d < v_plan->P; d++) {
        const struct v_pattern own = v_plan->pattern(v_plan->P, d);
        const int offset[4] = { own.f0, own.f1, own.i1, own.i0 };
        memset(v_plan->line[d].unit, EMPTY, (size_t)v_plan->length);
        for (int part = F0; part <= I0; part++)
            for (int m = 0; m < v_plan->M; m++) {
                /* A microbatch has six units: F0, F1, I1, I0 and two W; the pattern repeats every six. */
                const int t = offset[part] + 6 * m;
                assert(t < v_plan->length && v_plan->line[d].unit[t] == EMPTY);
                v_plan->line[d].unit[t] = (unsigned char)part;
                *when(v_plan, d, part, m) = t;
                v_plan->event[v_plan->events++] = (struct event){ t, (short)d, (short)part, m };
            }
    }
    qsort(v_plan->event, (size_t)v_plan->events, sizeof *v_plan->event, v_pattern_by_time);
}

/* Put weight gradients into free units, in the order of their I; then count the chunks held in each unit. */
static void fill_weights(struct v_plan *v_plan, int d)
{
    struct line *l = &v_plan->line[d];
    for (int t = 0, waiting = 0; t < v_plan->length; t++) {
        if (l->unit[t] == WEIGHT) l->unit[t] = EMPTY;
        if (l->unit[t] == I0 || l->unit[t] == I1) waiting++;
        /* A free unit takes the W that has waited longest. */
        if (l->unit[t] == EMPTY && waiting > 0) {
            l->unit[t] = WEIGHT;
            waiting--;
        }
    }
    for (int t = 0, held = 0; t < v_plan->length; t++) {
        /* A chunk's activations are held from its F to its W. */
        held += l->unit[t] == F0 || l->unit[t] == F1;
        l->held[t] = held;
        held -= l->unit[t] == WEIGHT;
    }
}

/* The result is the most chunks whose activations the device holds in any unit. */
static int v_pattern_fullest(const struct v_plan *v_plan, int d)
{
    int most = 0;
    for (int t = 0; t < v_plan->length; t++)
        if (v_plan->line[d].held[t] > most) most = v_plan->line[d].held[t];
    return most;
}

static int later(int a, int b) { return a > b ? a : b; }

/* The first unit in which this event's inputs are ready.  F0 and I1 go down the devices, F1 and I0 up. */
static int earliest(const struct v_plan *v_plan, struct event event)
{
    int t = 0;
    const int from = event.part == F0 || event.part == I1 ? event.device - 1 : event.device + 1;
    if (from >= 0 && from < v_plan->P) t = later(t, *when(v_plan, from, event.part, event.micro) + 1);
    /* On one device the parts of a microbatch keep the order F0, F1, I1, I0. */
    if (event.part > F0) t = later(t, *when(v_plan, event.device, event.part - 1, event.micro) + 1);
    /* Each part keeps the order of the microbatches. */
    if (event.micro > 0) t = later(t, *when(v_plan, event.device, event.part, event.micro - 1) + 1);
    return t;
}

/* v_pattern_place moves an event to another unit and fills in W anew, because free units have changed. */
static void v_pattern_place(struct v_plan *v_plan, struct event event, int from, int to)
{
    v_plan->line[event.device].unit[from] = EMPTY;
    v_plan->line[event.device].unit[to] = (unsigned char)event.part;
    fill_weights(v_plan, event.device);
}

/* draw_forward moves an event to the first unit that is free or has a weight gradient, which can move.  The device
 * must never hold more than the pattern does. */
static void draw_forward(struct v_plan *v_plan, struct event event)
{
    for (int t = earliest(v_plan, event); t < event.time; t++) {
        if (v_plan->line[event.device].unit[t] != EMPTY && v_plan->line[event.device].unit[t] != WEIGHT) continue;
        v_pattern_place(v_plan, event, event.time, t);
        if (v_pattern_fullest(v_plan, event.device) <= v_plan->most) {
            *when(v_plan, event.device, event.part, event.micro) = t;
            return;
        }
        /* The device would hold too much there, so the event goes back to its old unit. */
        v_pattern_place(v_plan, event, t, event.time);
    }
}

/* Only before and after the steady state: from the first device's first I0 to its last F0 no unit is free. */
static void squeeze(struct v_plan *v_plan)
{
    const int steady = *when(v_plan, 0, I0, 0), done = *when(v_plan, 0, F0, v_plan->M - 1);
    for (int i = 0; i < v_plan->events; i++)
        if (v_plan->event[i].time < steady || v_plan->event[i].time > done) draw_forward(v_plan, v_plan->event[i]);
}

/* put_line turns the units of a device into its list of actions.  Empty units only mean waiting and leave no action. */
static void put_line(struct v_plan *v_plan, int d)
{
    const struct line *l = &v_plan->line[d];
    int done[4] = { 0 }, *waiting = l->held, first = 0, last = 0;       /* reuses memory: held is no longer needed */
    for (int t = 0; t < v_plan->length; t++) {
        const int part = l->unit[t], chunk = part == F1 || part == I1;
        if (part == F0 || part == F1) schedule_put(v_plan->s, d, FORWARD, done[part]++, chunk);
        if (part == I0 || part == I1) {
            /* A queue of microbatch and chunk: W follow their I in order. */
            waiting[last++] = 2 * done[part] + chunk;
            schedule_put(v_plan->s, d, BACKWARD_INPUT, done[part]++, chunk);
        }
        if (part == WEIGHT) {
            schedule_put(v_plan->s, d, BACKWARD_WEIGHT, waiting[first] / 2, waiting[first] % 2);
            first++;
        }
    }
}

/* plan_and_put plans all devices on lines of units, squeezes the plan, and writes the lists. */
static enum error_code plan_and_put(struct v_plan *v_plan, struct error *err)
{
    /* The length is the end of the last device's pattern, plus 6 units for each microbatch. */
    for (int d = 0; d < v_plan->P; d++) v_plan->length = later(v_plan->length, v_plan->pattern(v_plan->P, d).i0);
    /* At most 2 M weight gradients come after everything else. */
    v_plan->length += 6 * v_plan->M + 2 * v_plan->M + 1;
    v_plan->line = calloc((size_t)v_plan->P, sizeof *v_plan->line);
    v_plan->when = calloc(4 * (size_t)v_plan->P * (size_t)v_plan->M, sizeof *v_plan->when);
    v_plan->event = calloc(4 * (size_t)v_plan->P * (size_t)v_plan->M, sizeof *v_plan->event);
    unsigned char *units = calloc((size_t)v_plan->P * (size_t)v_plan->length, 1);
    int *held = calloc((size_t)v_plan->P * (size_t)v_plan->length, sizeof *held);
    enum error_code code = OK;
    if (v_plan->line == NULL || v_plan->when == NULL || v_plan->event == NULL || units == NULL || held == NULL)
        code = fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", v_plan->s->name);
    else {
        for (int d = 0; d < v_plan->P; d++) {
            const size_t at = (size_t)d * (size_t)v_plan->length;
            v_plan->line[d] = (struct line){ units + at, held + at };
        }
        /* The plan has three steps: copies of the pattern, W in free units, then earlier places at both ends. */
        v_pattern_lay_out(v_plan);
        for (int d = 0; d < v_plan->P; d++) {
            fill_weights(v_plan, d);
            v_plan->most = later(v_plan->most, v_pattern_fullest(v_plan, d));
        }
        squeeze(v_plan);
        for (int d = 0; d < v_plan->P; d++) put_line(v_plan, d);
    }
    free(v_plan->line);
    free(v_plan->when);
    free(v_plan->event);
    free(units);
    free(held);
    return code;
}

enum error_code make_v_schedule(struct schedule *schedule, const char *name, const struct schedule_request *request,
                                struct v_pattern (*pattern)(int P, int d), struct error *err)
{
    if (schedule_begin(schedule, name, request->devices, request->micros, 2, err) != OK) return err->code;
    place_v(schedule);
    struct v_plan p = { .s = schedule, .pattern = pattern, .P = request->devices, .M = request->micros };
    if (plan_and_put(&p, err) != OK) {
        schedule_free(schedule);
        return err->code;
    }
    return schedule_finish(schedule, err);
}
