/* zb_search.c -- searches a zero-bubble schedule by the heuristic of P. Qi et al., arXiv:2401.10241, section 3.1,
 * with all settings of its three switches.
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
 *
 * zb_1p.c and zb_2p.c call zero_bubble_search.  The only error is ERR_MEMORY; then the caller frees the schedule.
 */
#include "emulated_devices/schemes/pipeline/schedules/zb_search.h"
#include <stdlib.h>

enum { F, I, W, PARTS };
enum switches { FILL_BEFORE_FIRST = 1, GREEDY = 2, PASS_OVER = 4, SETTINGS = 8 };

/* Each device of the plan has its own clock and its list so far. */
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
static int64_t arrival(const struct plan *plan, int d, int part)
{
    const int m = plan->dev[d].done[part], from = part == F ? d - 1 : d + 1;
    if (part == W || from < 0 || from >= plan->P) return 0;
    return plan->dev[from].end[part][m] + plan->comm;
}

/* zb_search_perform does a device's next F, I or W. The device's clock waits for the input, then advances by the
 * cost. */
static void zb_search_perform(struct plan *plan, int d, int part)
{
    struct device *v = &plan->dev[d];
    const int64_t at = arrival(plan, d, part);
    if (at > v->clock) {
        /* Waiting before the first forward is no bubble: the pipeline fills. */
        if (v->done[F] > 0) v->bubble += at - v->clock;
        v->clock = at;
    }
    if (v->bubble > plan->worst_bubble) plan->worst_bubble = v->bubble;
    if (v->length == 0) v->began = v->clock;
    v->clock += plan->cost[part];
    if (part != W) v->end[part][v->done[part]] = v->clock;
    v->held += plan->memory[part];
    v->done[part]++;
    v->order[v->length++] = (char)part;
}

static int weights_waiting(const struct device *device) { return device->done[I] - device->done[W]; }

/* Do an F or I.  Before it do weight gradients, to stay within the memory limit and instead of waiting. */
static void perform_filled(struct plan *plan, int d, int part)
{
    struct device *v = &plan->dev[d];
    /* A W frees memory, so that the next F or I fits. */
    while (v->held + plan->memory[part] > plan->limit && weights_waiting(v) > 0) zb_search_perform(plan, d, W);
    const int64_t at = arrival(plan, d, part);
    /* W that end before the input arrives cost nothing. */
    while (weights_waiting(v) > 0 && v->clock + plan->cost[W] <= at) zb_search_perform(plan, d, W);
    const int64_t gap = at - v->clock;
    /* A W that ends later delays this action: taken if greedy, or if waiting would be the worst bubble. */
    if (gap > 0 && weights_waiting(v) > 0 && ((plan->switches & GREEDY) || gap > plan->worst_bubble - v->bubble))
        zb_search_perform(plan, d, W);
    zb_search_perform(plan, d, part);
}

/* More forwards until the first gradient arrives; always fewer than on the device before. */
static void warm_up(struct plan *plan)
{
    for (int d = 0; d < plan->P; d++) zb_search_perform(plan, d, F);
    /* The last device's first I sets when gradients reach each device. */
    int64_t gradient = plan->dev[plan->P - 1].clock + plan->cost[I];
    for (int d = plan->P - 2; d >= 0; d--) {
        struct device *v = &plan->dev[d];
        int64_t clock = v->clock;
        const int64_t at = gradient + plan->comm;
        /* More forwards fill the time until then, as far as memory allows. */
        while (1 + v->extra < plan->M && v->held + (1 + v->extra) * plan->memory[F] <= plan->limit &&
               (plan->switches & FILL_BEFORE_FIRST ? clock < at : clock + plan->cost[F] <= at)) {
            clock += plan->cost[F];
            v->extra++;
        }
        gradient = (clock > at ? clock : at) + plan->cost[I];
    }
    for (int d = 1; d < plan->P; d++)
        /* A device has fewer than the one before it, which feeds it. */
        if (plan->dev[d].extra >= plan->dev[d - 1].extra)
            plan->dev[d].extra = plan->dev[d - 1].extra > 0 ? plan->dev[d - 1].extra - 1 : 0;
    for (int d = 0; d < plan->P; d++)
        for (int i = plan->dev[d].extra; i > 0; i--) zb_search_perform(plan, d, F);
    for (int d = plan->P - 1; d >= 0; d--) zb_search_perform(plan, d, I);
}

/* Whether this device may skip its forward in this round: only if the next one, two forwards behind, keeps working. */
static bool may_pass_over(const struct plan *plan, int d)
{
    const struct device *v = &plan->dev[d];
    if (!(plan->switches & PASS_OVER) || d + 1 >= plan->P || v->done[F] < plan->dev[d + 1].done[F] + 2) return false;
    const int64_t next_needs = plan->dev[d + 1].clock + plan->cost[F] + plan->cost[I] + plan->comm;
    if (v->clock >= next_needs) return true;
    /* A forward on this device ends at `ready`, after the W that must make room for its activations. */
    int64_t ready = v->clock + plan->cost[F];
    int64_t held = v->held + plan->memory[F];
    for (int w = weights_waiting(v); held > plan->limit && w > 0; w--, held += plan->memory[W]) ready += plan->cost[W];
    if (ready <= next_needs) return false;
    return next_needs - v->clock <= plan->worst_bubble - v->bubble;
}

/* steady plans a round of the steady state: at most one F, then one I, on every device. */
static void steady(struct plan *plan)
{
    for (int d = plan->P - 1; d >= 0; d--) {
        struct device *v = &plan->dev[d];
        /* `extra` is 1 if the device does a forward in this round. */
        v->extra = v->done[F] < plan->M && !may_pass_over(plan, d);
        /* If the next device passes over its forward, this one does, too. */
        if (v->done[F] < plan->M && d + 1 < plan->P && plan->dev[d + 1].done[F] < plan->M && !plan->dev[d + 1].extra)
            v->extra = 0;
    }
    for (int d = 0; d < plan->P; d++)
        if (plan->dev[d].extra) perform_filled(plan, d, F);
    for (int d = plan->P - 1; d >= 0; d--) {
        if (d == 0 && plan->dev[0].done[F] == plan->M)        /* no device needs the first device's input gradient */
            while (weights_waiting(&plan->dev[0]) > 0) zb_search_perform(plan, 0, W);
        perform_filled(plan, d, I);
    }
}

/* make_plan plans all devices with the switches set, and returns the longest span of a device. */
static int64_t make_plan(struct plan *plan)
{
    int64_t span = 0;
    plan->worst_bubble = 0;
    for (int d = 0; d < plan->P; d++) {
        struct device *v = &plan->dev[d];
        v->clock = v->bubble = v->began = 0;
        v->done[F] = v->done[I] = v->done[W] = v->held = v->extra = v->length = 0;
    }
    warm_up(plan);
    /* warm_up has done the first I of every device, so M - 1 rounds are left. */
    for (int m = 1; m < plan->M; m++) steady(plan);
    for (int d = 0; d < plan->P; d++) {
        struct device *v = &plan->dev[d];
        while (v->done[W] < plan->M) zb_search_perform(plan, d, W);
        if (v->clock - v->began > span) span = v->clock - v->began;
    }
    return span;
}

/* put_plan copies the order of each device into the schedule.  Within a kind, microbatches are numbered from 0 up. */
static void put_plan(struct schedule *schedule, const struct plan *plan)
{
    static const enum action_kind kind[PARTS] = { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT };
    for (int d = 0; d < plan->P; d++) {
        int done[PARTS] = { 0 };
        for (int i = 0; i < plan->dev[d].length; i++) {
            const int part = plan->dev[d].order[i];
            schedule_put(schedule, d, kind[part], done[part]++, 0);
        }
    }
}

/* devices_begin allocates P devices with two tables for all: ends [P, 2, M] and orders [P, 3 M]. */
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

enum error_code zero_bubble_search(struct schedule *schedule, const struct schedule_request *request, int limit,
                                   struct error *err)
{
    const int64_t whole = request->activation > 0 ? request->activation : 1, kept = request->activation > 0
        ? request->kept_for_weight : 1;
    struct plan p = { .P = request->devices, .M = request->micros, .comm = request->communication,
                      .cost = { request->forward, request->backward_input, request->backward_weight },
                      .memory = { whole, kept - whole, -kept }, .limit = limit * whole };
    if (p.cost[F] == 0 && p.cost[I] == 0 && p.cost[W] == 0) p.cost[F] = p.cost[I] = p.cost[W] = 1;
    p.dev = devices_begin(p.P, p.M);
    if (p.dev == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to search", schedule->name);
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
    /* Only the last plan is in memory, so the best setting is planned again. */
    p.switches = best;
    make_plan(&p);
    put_plan(schedule, &p);
    free(p.dev[0].end[F]);
    free(p.dev[0].order);
    free(p.dev);
    return OK;
}
