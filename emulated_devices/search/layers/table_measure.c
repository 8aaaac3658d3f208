/* table_measure.c -- plans steps of few layers, and takes differences: a second layer's time, state, activations of a
 * second microbatch.  table_make.c calls.  ERR_PLAN: the strategy cannot be trained. */
#include "emulated_devices/search/layers/table_measure.h"
#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/train/dry_run/step_path.h"
#include <stdlib.h>
#include <string.h>

/* The plan of a strategy's layers on `stages` times its devices, with as many sequences in a microbatch. */
static enum error_code few_layers_plan(struct plan *q, const struct plan *base, const struct strategy *s, int micros,
                                       int layers, int stages, int passes, struct error *err)
{
    int size[AXIS_COUNT];
    memcpy(size, s->axis, sizeof size);
    size[PP] = stages;
    *q = *base;
    q->model.L = layers, q->B = base->B / micros * passes, q->micros = passes, q->chunks = 1;
    q->schedule = "gpipe", q->tensor = s->tensor, q->attention = s->attention;
    q->data.scheme = s->data, q->recompute = s->recompute;
    if (s->ep > 1) q->ep = s->ep, q->etp = 1, q->dispatch = s->dispatch;
    const enum error_code e = mesh_make(&q->mesh, size, err);
    return e ? e : plan_check(q, err);
}

/* A place of the pipeline: the largest of its devices. */
struct measured_place { picoseconds passes, rest; uint64_t peak, active, kept, shared, sent[CLUSTER_LEVELS]; };
struct measured_places { struct measured_place at[2]; picoseconds computing; };

static void note_larger(uint64_t *most, uint64_t value) { *most = value > *most ? value : *most; }

/* Note what a device's step took in its passes, and after them. */
static enum error_code measure_note(struct trainer *trainer, void *context, struct error *err)
{
    const int rank = trainer->pp.rank, count = trainer->schedule.count[rank];
    struct measured_place *const place = &((struct measured_places *)context)->at[rank];
    picoseconds passes = 0, end = 0;
    (void)err;
    for (int i = 0; i < count; i++) {
        if (!action_is_message(trainer->schedule.actions[rank][i].kind))
            passes += trainer->times[i].end - trainer->times[i].start;
        if (trainer->times[i].end > end) end = trainer->times[i].end;
    }
    if (passes > place->passes) place->passes = passes;
    if (trainer->device->clock.now - end > place->rest) place->rest = trainer->device->clock.now - end;
    note_larger(&place->peak, trainer->device->arena.peak.total);
    note_larger(&place->active, trainer->device->arena.peak.tag[ACTIVATIONS]);
    note_larger(&place->kept, trainer->device->arena.now.total);
    note_larger(&place->shared, ledger_kind(&trainer->comm->counted, TRAFFIC_DATA).bytes_sent);
    for (int l = 0; l < CLUSTER_LEVELS; l++)
        note_larger(&place->sent[l], ledger_level(&trainer->comm->counted, l).bytes);
    return OK;
}

enum { EVENTS_OF_FEW_LAYERS = 1 << 20 };

/* A planned step asks at most so often whether it shall end.  A strategy whose devices do not fold, such as ddp with
 * blocks that are not equal, asks more with hundreds of copies, and is left out: the table of llama3-405b on 4096
 * devices has 94 strategies then and takes 9 s of a processor, and with all of them more than a minute. */
enum { ASKS_MOST = 1 << 16 };

struct measuring { const struct crew_stop *outer; int64_t asks; };

static bool measure_ends(void *context)
{
    struct measuring *const m = context;
    return ++m->asks > ASKS_MOST || (m->outer && m->outer->asked && m->outer->asked(m->outer->context));
}

/* Plan a step; of one stage also what its first device computes. */
static enum error_code measure_step(const struct plan *plan, const struct crew_stop *stop,
                                    struct measured_places *places, struct error *err)
{
    const struct cluster alone = cluster_without_replay(plan->cluster);
    struct plan q = *plan;
    struct dry_events events;
    struct dry_run d;
    int64_t left = EVENTS_OF_FEW_LAYERS;
    *places = (struct measured_places){ .computing = 0 };
    q.cluster = &alone;
    struct measuring measuring = { stop, 0 };
    const struct crew_stop ends = { measure_ends, &measuring };
    enum error_code e = dry_events_open(&events, q.mesh.devices, &left, err);
    if (!e) e = dry_run_step(&q, &ends, &events, measure_note, places, &d, err);
    if (e == ERR_STOPPED && measuring.asks > ASKS_MOST) e = ERR_PLAN;
    if (!e) {
        const picoseconds end = step_end(&d.folding, events.of);
        if (end > 0) places->computing = step_share(events.of[folding_first(&d.folding, 0)], end).computing;
    }
    dry_events_close(&events, q.mesh.devices);
    return e;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

static uint64_t above(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static picoseconds time_above(picoseconds a, picoseconds b) { return a > b ? a - b : 0; }

/* Steps of one stage: [layers - 1][microbatches - 1]. */
struct measured_steps { struct measured_places one[2][2], two; };

static struct layer_cost layer_of(const struct measured_steps *steps, int micros)
{
    const struct measured_place *const a = &steps->one[0][0].at[0], *const b = &steps->one[1][0].at[0],
        *const a2 = &steps->one[0][1].at[0], *const b2 = &steps->one[1][1].at[0];
    struct layer_cost c = { .there = true };
    c.time = time_above(b->passes, a->passes), c.once = time_above(b->rest, a->rest);
    c.computing = time_above(steps->one[1][0].computing, steps->one[0][0].computing);
    if (c.computing > c.time) c.computing = c.time;
    c.state = above(b->kept, a->kept), c.shared = above(b->shared, a->shared);
    /* The peak of activations alone counts: that of all may be in the optimizer's step, where no microbatch is in
     * flight. */
    c.activation = above(above(b2->active, a2->active), above(b->active, a->active));
    for (int l = 0; l < CLUSTER_LEVELS; l++) {
        const uint64_t both = above(b->sent[l], a->sent[l]), twice = above(b2->sent[l], a2->sent[l]),
            micro = above(twice, both);
        c.sent[l] = above(both, micro) + (uint64_t)micros * micro;
    }
    return c;
}

/* Return what a place has besides one layer. */
static struct layer_cost end_of(const struct measured_place *place, const struct layer_cost *layer)
{
    struct layer_cost c = { .there = true };
    c.time = time_above(place->passes, layer->time);
    c.state = above(place->kept, layer->state);
    return c;
}

enum error_code measure_layer(const struct plan *base, const struct strategy *s, int micros,
                              const struct crew_stop *stop, struct measured_layer *out, struct error *err)
{
    struct measured_steps steps;
    struct plan q;
    enum error_code e = OK;
    for (int layers = 1; layers <= 2 && !e; layers++)
        for (int passes = 1; passes <= 2 && !e; passes++) {
            e = few_layers_plan(&q, base, s, micros, layers, 1, passes, err);
            if (!e) e = measure_step(&q, stop, &steps.one[layers - 1][passes - 1], err);
        }
    if (!e) e = few_layers_plan(&q, base, s, micros, 2, 2, 1, err);
    if (!e) e = measure_step(&q, stop, &steps.two, err);
    if (e) return e;
    const struct measured_place *const whole = &steps.one[0][0].at[0], *const end = steps.two.at;
    *out = (struct measured_layer){ .layer = layer_of(&steps, micros) };
    const struct layer_cost *const layer = &out->layer;
    out->first = end_of(&end[0], layer), out->last = end_of(&end[1], layer);
    /* Both ends have half of what comes once besides layers. */
    out->first.once = out->last.once = time_above(whole->rest, layer->once) / 2;
    out->passing = above(end[0].peak, end[0].kept + layer->activation);
    out->passing_last = above(end[1].peak, end[1].kept + layer->activation);
    return OK;
}

/* ---- between layers ---------------------------------------------------------------------------------------------- */

/* Boxings of more devices are those of so many with fewer copies: neighbours exchange. */
enum { BOXED_DEVICES = 64 };

static enum error_code edge_side(struct plan *q, const struct plan *base, const struct strategy *s, int micros,
                                 int copies, struct error *err)
{
    struct strategy few = *s;
    struct plan smaller = *base;
    few.axis[DP] /= copies, smaller.B = base->B / copies;
    const enum error_code e = few_layers_plan(q, &smaller, &few, micros, 1, 1, 1, err);
    q->micros = 1;
    return e;
}

/* The time of some messages of one device, one after another on its port, and the way of the last. */
static picoseconds messages_time(const struct plan *plan, int rank, const struct boxing_transfer *list, int count)
{
    const struct cluster *const c = plan->cluster;
    picoseconds busy = 0, latency = 0;
    for (int i = 0; i < count && c; i++) {
        const struct link *const link = &c->link[cluster_level(c, rank, list[i].peer)];
        busy += link->gap + time_at_rate((uint64_t)list[i].elements * dtype_size(plan->dtype), link->rate);
        if (link->latency > latency) latency = link->latency;
    }
    return busy + latency;
}

static enum error_code boxing_time(const struct plan *from, const struct plan *to, int rank, bool gradient,
                                   picoseconds *time, struct error *err)
{
    struct boxing boxing;
    const enum error_code e = boxing_make(&boxing, from, to, rank, 0, gradient, err);
    if (e) return e;
    const picoseconds sends = messages_time(from, rank, boxing.send, boxing.sends),
        receives = messages_time(from, rank, boxing.receive, boxing.receives);
    *time = sends > receives ? sends : receives;
    boxing_free(&boxing);
    return OK;
}

enum error_code measure_edge(const struct plan *base, const struct strategy *from, const struct strategy *to,
                             int micros, picoseconds *time, struct error *err)
{
    int copies = 1;
    while (from->devices / copies > BOXED_DEVICES && from->axis[DP] % (2 * copies) == 0 &&
           to->axis[DP] % (2 * copies) == 0) copies *= 2;
    struct plan a, b;
    enum error_code e = edge_side(&a, base, from, micros, copies, err);
    if (!e) e = edge_side(&b, base, to, micros, copies, err);
    *time = 0;
    /* The first device and the last: all others are between them. */
    for (int last = 0; last < 2 && !e; last++) {
        const int rank = last * (a.mesh.devices - 1);
        picoseconds there = 0, back = 0;
        e = boxing_time(&a, &b, rank, false, &there, err);
        if (!e) e = boxing_time(&b, &a, rank, true, &back, err);
        if (there + back > *time) *time = there + back;
    }
    return e;
}

picoseconds measure_hop(const struct plan *base, int from, int to, int micros)
{
    const struct cluster *const c = base->cluster;
    if (c == NULL) return 0;
    const struct link *const link = &c->link[cluster_level(c, 0, from)];
    const uint64_t stream = (uint64_t)(base->B / micros * base->S * base->model.D) * dtype_size(base->dtype);
    return 2 * (link->latency + link->gap + time_at_rate(stream / (uint64_t)(from < to ? from : to), link->rate));
}
