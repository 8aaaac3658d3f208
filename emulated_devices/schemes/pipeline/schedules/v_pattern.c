/* v_pattern.c -- repeats a building block, fills in W, then squeezes the schedule.
 *
 * Source    P. Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 (building blocks,
 *           lifespan and memory) and appendix (squeezing and reordering).
 * Every unit of a device's time line has one action or none.  A block uses memory from its F to its W.  Repeating it
 * every 6 units (F, I and W of two chunks) leaves no free unit in the steady state.  Before and after the steady state
 * there are gaps: actions move into earlier free units, in order of time, if the device then never holds more than the
 * pattern's maximum.
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

static int *when(const struct v_plan *p, int device, int part, int micro)
{
    return &p->when[(device * 4 + part) * p->M + micro];
}

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    return x->time != y->time ? (x->time > y->time) - (x->time < y->time) : x->device - y->device;
}

static void lay_out(struct v_plan *p)
{
    p->events = 0;
    for (int d = 0; d < p->P; d++) {
        const struct v_pattern own = p->pattern(p->P, d);
        const int offset[4] = { own.f0, own.f1, own.i1, own.i0 };
        memset(p->line[d].unit, EMPTY, (size_t)p->length);
        for (int part = F0; part <= I0; part++)
            for (int m = 0; m < p->M; m++) {
                /* A microbatch has six units: F0, F1, I1, I0 and two W; the pattern repeats every six. */
                const int t = offset[part] + 6 * m;
                assert(t < p->length && p->line[d].unit[t] == EMPTY);
                p->line[d].unit[t] = (unsigned char)part;
                *when(p, d, part, m) = t;
                p->event[p->events++] = (struct event){ t, (short)d, (short)part, m };
            }
    }
    qsort(p->event, (size_t)p->events, sizeof *p->event, by_time);
}

/* Put weight gradients into free units, in the order of their I; then count the chunks held in each unit. */
static void fill_weights(struct v_plan *p, int d)
{
    struct line *l = &p->line[d];
    for (int t = 0, waiting = 0; t < p->length; t++) {
        if (l->unit[t] == WEIGHT) l->unit[t] = EMPTY;
        if (l->unit[t] == I0 || l->unit[t] == I1) waiting++;
        /* A free unit takes the W that has waited longest. */
        if (l->unit[t] == EMPTY && waiting > 0) {
            l->unit[t] = WEIGHT;
            waiting--;
        }
    }
    for (int t = 0, held = 0; t < p->length; t++) {
        /* A chunk's activations are held from its F to its W. */
        held += l->unit[t] == F0 || l->unit[t] == F1;
        l->held[t] = held;
        held -= l->unit[t] == WEIGHT;
    }
}

static int fullest(const struct v_plan *p, int d)
{
    int most = 0;
    for (int t = 0; t < p->length; t++)
        if (p->line[d].held[t] > most) most = p->line[d].held[t];
    return most;
}

static int later(int a, int b) { return a > b ? a : b; }

/* The first unit in which this event's inputs are ready.  F0 and I1 go down the devices, F1 and I0 up. */
static int earliest(const struct v_plan *p, struct event e)
{
    int t = 0;
    const int from = e.part == F0 || e.part == I1 ? e.device - 1 : e.device + 1;
    if (from >= 0 && from < p->P) t = later(t, *when(p, from, e.part, e.micro) + 1);
    if (e.part > F0) t = later(t, *when(p, e.device, e.part - 1, e.micro) + 1);
    if (e.micro > 0) t = later(t, *when(p, e.device, e.part, e.micro - 1) + 1);
    return t;
}

static void place(struct v_plan *p, struct event e, int from, int to)
{
    p->line[e.device].unit[from] = EMPTY;
    p->line[e.device].unit[to] = (unsigned char)e.part;
    fill_weights(p, e.device);
}

/* Move an event to the first unit that is free or has a weight gradient (which can move), if the device then never
 * holds more than the pattern does. */
static void draw_forward(struct v_plan *p, struct event e)
{
    for (int t = earliest(p, e); t < e.time; t++) {
        if (p->line[e.device].unit[t] != EMPTY && p->line[e.device].unit[t] != WEIGHT) continue;
        place(p, e, e.time, t);
        if (fullest(p, e.device) <= p->most) {
            *when(p, e.device, e.part, e.micro) = t;
            return;
        }
        /* It would hold too much there: back to its old unit. */
        place(p, e, t, e.time);
    }
}

/* Only before and after the steady state: from the first device's first I0 to its last F0 no unit is free. */
static void squeeze(struct v_plan *p)
{
    const int steady = *when(p, 0, I0, 0), done = *when(p, 0, F0, p->M - 1);
    for (int i = 0; i < p->events; i++)
        if (p->event[i].time < steady || p->event[i].time > done) draw_forward(p, p->event[i]);
}

static void put_line(struct v_plan *p, int d)
{
    const struct line *l = &p->line[d];
    int done[4] = { 0 }, *waiting = l->held, first = 0, last = 0;       /* reuses memory: held is no longer needed */
    for (int t = 0; t < p->length; t++) {
        const int part = l->unit[t], chunk = part == F1 || part == I1;
        if (part == F0 || part == F1) schedule_put(p->s, d, FORWARD, done[part]++, chunk);
        if (part == I0 || part == I1) {
            /* A queue of microbatch and chunk: W follow their I in order. */
            waiting[last++] = 2 * done[part] + chunk;
            schedule_put(p->s, d, BACKWARD_INPUT, done[part]++, chunk);
        }
        if (part == WEIGHT) {
            schedule_put(p->s, d, BACKWARD_WEIGHT, waiting[first] / 2, waiting[first] % 2);
            first++;
        }
    }
}

static enum error_code plan_and_put(struct v_plan *p, struct error *err)
{
    for (int d = 0; d < p->P; d++) p->length = later(p->length, p->pattern(p->P, d).i0);
    p->length += 6 * p->M + 2 * p->M + 1;               /* at most 2M weight gradients are after everything else */
    p->line = calloc((size_t)p->P, sizeof *p->line);
    p->when = calloc(4 * (size_t)p->P * (size_t)p->M, sizeof *p->when);
    p->event = calloc(4 * (size_t)p->P * (size_t)p->M, sizeof *p->event);
    unsigned char *units = calloc((size_t)p->P * (size_t)p->length, 1);
    int *held = calloc((size_t)p->P * (size_t)p->length, sizeof *held);
    enum error_code code = OK;
    if (p->line == NULL || p->when == NULL || p->event == NULL || units == NULL || held == NULL)
        code = fail(err, ERR_MEMORY, "schedule %s: no memory to plan it", p->s->name);
    else {
        for (int d = 0; d < p->P; d++) {
            const size_t at = (size_t)d * (size_t)p->length;
            p->line[d] = (struct line){ units + at, held + at };
        }
        lay_out(p);
        for (int d = 0; d < p->P; d++) {
            fill_weights(p, d);
            p->most = later(p->most, fullest(p, d));
        }
        squeeze(p);
        for (int d = 0; d < p->P; d++) put_line(p, d);
    }
    free(p->line);
    free(p->when);
    free(p->event);
    free(units);
    free(held);
    return code;
}

enum error_code make_v_schedule(struct schedule *s, const char *name, const struct schedule_request *q,
                                struct v_pattern (*pattern)(int P, int d), struct error *err)
{
    if (schedule_begin(s, name, q->devices, q->micros, 2, err) != OK) return err->code;
    place_v(s);
    struct v_plan p = { .s = s, .pattern = pattern, .P = q->devices, .M = q->micros };
    if (plan_and_put(&p, err) != OK) {
        schedule_free(s);
        return err->code;
    }
    return schedule_finish(s, err);
}
