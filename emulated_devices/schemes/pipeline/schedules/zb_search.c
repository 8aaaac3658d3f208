/* zb_search.c -- the heuristic of P. Qi et al., arXiv:2401.10241, section 3.1, with all settings of its three switches.
 *
 * All devices are planned together, one microbatch after another, each with its own clock:
 *   warm up   every device does its first forward, and more until the first gradient can arrive, if memory allows;
 *             switch 1: in a gap too short for a whole forward, wait, or do the forward and be late;
 *   steady    for each microbatch, one forward on every device from the first to the last, then one input gradient on
 *             every device from the last to the first.  Before each of these, weight gradients fill the time in which
 *             the device would wait: as many as fit; one more if otherwise this device's bubble would become the
 *             largest of all (switch 2: always one more); and as many as needed to stay within the memory limit;
 *             switch 3: a device that is two forwards ahead of the next one may skip a forward in this round, if the
 *             next one has enough work;
 *   finish    the remaining weight gradients.
 * The plan with the shortest span (last end minus first start, worst device) is used.  O(P M) time for each setting.
 */
#include "emulated_devices/schemes/pipeline/schedules/zb_search.h"
#include <stdlib.h>

enum { F, I, W, PARTS };
enum switches { FILL_BEFORE_FIRST = 1, GREEDY = 2, PASS_OVER = 4, SETTINGS = 8 };

struct device {
    int64_t clock, bubble, began;
    int done[PARTS];                    /* numbers of F, I, W done */
    int64_t held;
    int extra;                          /* forwards to do in this round */
    int64_t *end[2];                    /* [F or I][micro] */
    char *order;                        /* [3 M] which part */
    int length;
};

struct plan {
    int P, M;
    unsigned switches;
    int64_t cost[PARTS], comm;
    int64_t memory[PARTS], limit;       /* what an F, I or W adds to the memory held; the most that may be held */
    int64_t worst_bubble;
    struct device *dev;
};

/* The time when the input of a device's next F or I arrives; 0 if it needs none. */
static int64_t arrival(const struct plan *p, int d, int part)
{
    const int m = p->dev[d].done[part], from = part == F ? d - 1 : d + 1;
    if (part == W || from < 0 || from >= p->P) return 0;
    return p->dev[from].end[part][m] + p->comm;
}

static void perform(struct plan *p, int d, int part)
{
    struct device *v = &p->dev[d];
    const int64_t at = arrival(p, d, part);
    if (at > v->clock) {
        /* Waiting before the first forward is no bubble: the pipeline fills. */
        if (v->done[F] > 0) v->bubble += at - v->clock;
        v->clock = at;
    }
    if (v->bubble > p->worst_bubble) p->worst_bubble = v->bubble;
    if (v->length == 0) v->began = v->clock;
    v->clock += p->cost[part];
    if (part != W) v->end[part][v->done[part]] = v->clock;
    v->held += p->memory[part];
    v->done[part]++;
    v->order[v->length++] = (char)part;
}

static int weights_waiting(const struct device *v) { return v->done[I] - v->done[W]; }

/* Do an F or I.  Before it do weight gradients, to stay within the memory limit and instead of waiting. */
static void perform_filled(struct plan *p, int d, int part)
{
    struct device *v = &p->dev[d];
    /* A W frees memory, so that the next F or I fits. */
    while (v->held + p->memory[part] > p->limit && weights_waiting(v) > 0) perform(p, d, W);
    const int64_t at = arrival(p, d, part);
    /* W that end before the input arrives cost nothing. */
    while (weights_waiting(v) > 0 && v->clock + p->cost[W] <= at) perform(p, d, W);
    const int64_t gap = at - v->clock;
    /* A W that ends later delays this action: taken if greedy, or if waiting would be the worst bubble. */
    if (gap > 0 && weights_waiting(v) > 0 && ((p->switches & GREEDY) || gap > p->worst_bubble - v->bubble))
        perform(p, d, W);
    perform(p, d, part);
}

/* More forwards until the first gradient arrives; always fewer than on the device before. */
static void warm_up(struct plan *p)
{
    for (int d = 0; d < p->P; d++) perform(p, d, F);
    /* The last device's first I sets when gradients reach each device. */
    int64_t gradient = p->dev[p->P - 1].clock + p->cost[I];
    for (int d = p->P - 2; d >= 0; d--) {
        struct device *v = &p->dev[d];
        int64_t clock = v->clock;
        const int64_t at = gradient + p->comm;
        /* More forwards fill the time until then, as far as memory allows. */
        while (1 + v->extra < p->M && v->held + (1 + v->extra) * p->memory[F] <= p->limit &&
               (p->switches & FILL_BEFORE_FIRST ? clock < at : clock + p->cost[F] <= at)) {
            clock += p->cost[F];
            v->extra++;
        }
        gradient = (clock > at ? clock : at) + p->cost[I];
    }
    for (int d = 1; d < p->P; d++)
        /* A device has fewer than the one before it, which feeds it. */
        if (p->dev[d].extra >= p->dev[d - 1].extra)
            p->dev[d].extra = p->dev[d - 1].extra > 0 ? p->dev[d - 1].extra - 1 : 0;
    for (int d = 0; d < p->P; d++)
        for (int i = p->dev[d].extra; i > 0; i--) perform(p, d, F);
    for (int d = p->P - 1; d >= 0; d--) perform(p, d, I);
}

/* Whether this device may skip its forward in this round: only if the next one, two forwards behind, keeps working. */
static bool may_pass_over(const struct plan *p, int d)
{
    const struct device *v = &p->dev[d];
    if (!(p->switches & PASS_OVER) || d + 1 >= p->P || v->done[F] < p->dev[d + 1].done[F] + 2) return false;
    const int64_t next_needs = p->dev[d + 1].clock + p->cost[F] + p->cost[I] + p->comm;
    if (v->clock >= next_needs) return true;
    int64_t ready = v->clock + p->cost[F];
    int64_t held = v->held + p->memory[F];
    for (int w = weights_waiting(v); held > p->limit && w > 0; w--, held += p->memory[W]) ready += p->cost[W];
    if (ready <= next_needs) return false;
    return next_needs - v->clock <= p->worst_bubble - v->bubble;
}

static void steady(struct plan *p)
{
    for (int d = p->P - 1; d >= 0; d--) {
        struct device *v = &p->dev[d];
        v->extra = v->done[F] < p->M && !may_pass_over(p, d);
        /* If the next device passes over its forward, this one does, too. */
        if (v->done[F] < p->M && d + 1 < p->P && p->dev[d + 1].done[F] < p->M && !p->dev[d + 1].extra) v->extra = 0;
    }
    for (int d = 0; d < p->P; d++)
        if (p->dev[d].extra) perform_filled(p, d, F);
    for (int d = p->P - 1; d >= 0; d--) {
        if (d == 0 && p->dev[0].done[F] == p->M)        /* no device needs the first device's input gradient */
            while (weights_waiting(&p->dev[0]) > 0) perform(p, 0, W);
        perform_filled(p, d, I);
    }
}

static int64_t make_plan(struct plan *p)
{
    int64_t span = 0;
    p->worst_bubble = 0;
    for (int d = 0; d < p->P; d++) {
        struct device *v = &p->dev[d];
        v->clock = v->bubble = v->began = 0;
        v->done[F] = v->done[I] = v->done[W] = v->held = v->extra = v->length = 0;
    }
    warm_up(p);
    for (int m = 1; m < p->M; m++) steady(p);
    for (int d = 0; d < p->P; d++) {
        struct device *v = &p->dev[d];
        while (v->done[W] < p->M) perform(p, d, W);
        if (v->clock - v->began > span) span = v->clock - v->began;
    }
    return span;
}

static void put_plan(struct schedule *s, const struct plan *p)
{
    static const enum action_kind kind[PARTS] = { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT };
    for (int d = 0; d < p->P; d++) {
        int done[PARTS] = { 0 };
        for (int i = 0; i < p->dev[d].length; i++) {
            const int part = p->dev[d].order[i];
            schedule_put(s, d, kind[part], done[part]++, 0);
        }
    }
}

static struct device *devices_begin(int P, int M)
{
    struct device *dev = calloc((size_t)P, sizeof *dev);
    int64_t *ends = calloc(2 * (size_t)P * (size_t)M, sizeof *ends);
    char *orders = calloc(3 * (size_t)P * (size_t)M, 1);
    if (dev == NULL || ends == NULL || orders == NULL) {
        free(dev);
        free(ends);
        free(orders);
        return NULL;
    }
    for (int d = 0; d < P; d++) {
        dev[d].end[F] = ends + (size_t)d * 2 * (size_t)M;
        dev[d].end[I] = dev[d].end[F] + M;
        dev[d].order = orders + (size_t)d * 3 * (size_t)M;
    }
    return dev;
}

enum error_code zero_bubble_search(struct schedule *s, const struct schedule_request *q, int limit, struct error *err)
{
    const int64_t whole = q->activation > 0 ? q->activation : 1, kept = q->activation > 0 ? q->kept_for_weight : 1;
    struct plan p = { .P = q->devices, .M = q->micros, .comm = q->communication,
                      .cost = { q->forward, q->backward_input, q->backward_weight },
                      .memory = { whole, kept - whole, -kept }, .limit = limit * whole };
    if (p.cost[F] == 0 && p.cost[I] == 0 && p.cost[W] == 0) p.cost[F] = p.cost[I] = p.cost[W] = 1;
    p.dev = devices_begin(p.P, p.M);
    if (p.dev == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to search", s->name);
    unsigned best = 0;
    int64_t best_span = INT64_MAX;
    for (p.switches = 0; p.switches < SETTINGS; p.switches++) {
        /* All eight settings of the switches are planned; the shortest is kept. */
        const int64_t span = make_plan(&p);
        if (span < best_span) {
            best_span = span;
            best = p.switches;
        }
    }
    p.switches = best;
    make_plan(&p);
    put_plan(s, &p);
    free(p.dev[0].end[F]);
    free(p.dev[0].order);
    free(p.dev);
    return OK;
}
