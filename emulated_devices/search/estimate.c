#include "emulated_devices/search/estimate.h"
#include "emulated_devices/model/dry_run/dry_run.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdlib.h>
#include <string.h>

/* ---- one stage --------------------------------------------------------------------------------------------------- */

/* The times of a stage depend on these.  Keys are compared as bytes: a scheme's name has one address. */
struct stage_key {
    int dp, cp, tp, ep;
    bool splits;                        /* backward is in two actions */
    unsigned offload;
    int64_t sequences;                  /* of a microbatch */
    const char *tensor, *attention, *dispatch, *data, *recompute;
};

enum span_of { OF_FORWARD, OF_INPUT, OF_WEIGHT, OF_REST, PARTS };

struct stage_times {
    struct stage_key key;
    bool there;
    picoseconds layer[PARTS], ends[PARTS];      /* of a layer; of embedding, loss and what comes once a step */
};

static struct stage_key key_of(const struct plan *p, bool splits)
{
    struct stage_key k;
    memset(&k, 0, sizeof k);
    k.dp = p->mesh.size[DP], k.cp = p->mesh.size[CP], k.tp = p->mesh.size[TP], k.ep = p->ep;
    k.splits = splits, k.offload = p->data.offload;
    k.sequences = plan_microbatch(p, 0, 0).count;
    k.tensor = p->tensor, k.attention = p->attention, k.dispatch = p->dispatch;
    k.data = p->data.scheme, k.recompute = p->recompute;
    return k;
}

/* A plan of the same devices without other stages. */
static enum error_code stage_plan(struct plan *q, const struct plan *p, const struct stage_key *k, int64_t layers,
                                  struct error *err)
{
    int size[AXIS_COUNT];
    memcpy(size, p->mesh.size, sizeof size);
    size[PP] = 1;
    *q = *p;
    q->model.L = layers;
    q->micros = q->chunks = 1;
    q->schedule = k->splits ? "zb-h1" : schedule_generator_at(0)->head.name;
    q->B = k->sequences * k->dp;
    const enum error_code e = mesh_make(&q->mesh, size, err);
    return e ? e : plan_check(q, err);
}

struct noted { picoseconds part[PARTS], end; };

static enum error_code note(struct trainer *t, void *context, struct error *err)
{
    struct noted *n = context;
    picoseconds part[PARTS] = { 0 };
    (void)err;
    for (int i = 0; i < t->schedule.count[t->pp.rank]; i++) {
        const enum action_kind kind = t->schedule.actions[t->pp.rank][i].kind;
        const picoseconds took = t->times[i].end - t->times[i].start;
        part[kind == FORWARD ? OF_FORWARD : kind == BACKWARD_WEIGHT ? OF_WEIGHT : OF_INPUT] += took;
    }
    for (int i = 0; i < OF_REST; i++)
        if (part[i] > n->part[i]) n->part[i] = part[i];
    if (t->device->clock.now > n->end) n->end = t->device->clock.now;
    return OK;
}

static enum error_code plan_stage(const struct plan *p, const struct stage_key *k, int64_t layers, struct noted *n,
                                  struct error *err)
{
    struct plan q;
    struct dry_run d;
    *n = (struct noted){ .end = 0 };
    enum error_code e = stage_plan(&q, p, k, layers, err);
    if (!e) e = dry_run(&q, 1, false, NULL, NULL, note, n, &d, err);
    n->part[OF_REST] = n->end - n->part[OF_FORWARD] - n->part[OF_INPUT] - n->part[OF_WEIGHT];
    return e;
}

/* So many that the next one is not one of a mixture's dense layers. */
static int64_t few_layers(const struct model_config *c)
{
    int64_t few = 1;
    while (few + 1 < c->L && layer_set_has(&c->dense.at, (int)few)) few++;
    return few;
}

/* The difference of a stage with a layer more is that layer; the rest is what a model has once. */
static enum error_code time_stage(struct stage_times *s, const struct plan *p, struct error *err)
{
    const int64_t L = p->model.L, few = few_layers(&p->model);
    struct noted small, large;
    enum error_code e = plan_stage(p, &s->key, few, &small, err);
    if (!e && L == 1) large = small;
    else if (!e) e = plan_stage(p, &s->key, few + 1, &large, err);
    for (int i = 0; i < PARTS && !e; i++) {
        const picoseconds more = large.part[i] - small.part[i];
        s->layer[i] = L == 1 ? small.part[i] : more > 0 ? more : 0;
        s->ends[i] = small.part[i] > few * s->layer[i] ? small.part[i] - few * s->layer[i] : 0;
    }
    s->there = e == OK;
    return e == ERR_MEMORY ? e : OK;
}

static enum error_code find_stage(struct estimator *e, const struct plan *p, bool splits,
                                  const struct stage_times **out, struct error *err)
{
    const struct stage_key key = key_of(p, splits);
    for (int i = 0; i < e->count; i++)
        if (memcmp(&e->known[i].key, &key, sizeof key) == 0) return *out = &e->known[i], OK;
    if (e->count == e->room) {
        struct stage_times *more = realloc(e->known, (size_t)(e->room = 2 * e->room + 64) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %d stages", e->room);
        e->known = more;
    }
    struct stage_times *s = &e->known[e->count++];
    *s = (struct stage_times){ .key = key };
    e->planned++;
    *out = s;
    return time_stage(s, p, err);
}

void estimator_close(struct estimator *e)
{
    free(e->known);
    *e = (struct estimator){ 0 };
}

/* ---- a schedule of stages ---------------------------------------------------------------------------------------- */

static bool splits_backward(const struct schedule *s)
{
    for (int i = 0; i < s->count[0]; i++)
        if (s->actions[0][i].kind == BACKWARD_INPUT) return true;
    return false;
}

/* A microbatch's way from a stage to the next. */
static picoseconds hop(const struct plan *p)
{
    const struct cluster *c = p->cluster;
    const int stage = plan_stage_devices(p);
    if (c == NULL || p->mesh.size[PP] == 1) return 0;
    const struct link *l = &c->link[link_between(c->link, c->levels, 0, stage)];
    const uint64_t bytes = (uint64_t)(plan_microbatch(p, 0, 0).count * p->S / p->mesh.size[CP] * p->model.D) *
                           dtype_size(p->dtype);
    return l->latency + l->gap + time_at_rate(bytes, l->rate);
}

static int64_t layers_of_stage(const struct plan *p, int stage)
{
    return p->first_layer[stage + 1] - p->first_layer[stage];
}

static enum error_code time_pipeline(picoseconds *makespan, const struct plan *p, const struct schedule *s,
                                     const struct stage_times *t, struct error *err)
{
    const size_t n = (size_t)s->stages;
    int64_t *room = calloc(3 * n, sizeof *room);
    struct timing timing;
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %d stages", s->stages);
    for (size_t i = 0; i < 3 * n; i++)
        room[i] = t->layer[i / n] * layers_of_stage(p, (int)(i % n)) + (i % n == n - 1 ? t->ends[i / n] : 0);
    const struct schedule_times times = { room, room + n, room + 2 * n, hop(p), 0 };
    const enum error_code e = schedule_time(&timing, s, &times, err);
    if (!e) *makespan = timing.makespan, timing_free(&timing);
    free(room);
    return e;
}

/* The most layers of a device. */
static int64_t most_layers(const struct plan *p, const struct schedule *s)
{
    int64_t most = 0;
    for (int d = 0; d < s->devices; d++) {
        int64_t sum = 0;
        for (int c = 0; c < s->chunks; c++)
            if (s->stage_of[d][c] >= 0) sum += layers_of_stage(p, s->stage_of[d][c]);
        most = sum > most ? sum : most;
    }
    return most;
}

enum error_code estimate_step(struct estimator *e, const struct plan *p, picoseconds *out, struct error *err)
{
    const struct stage_times *stage = NULL;
    struct schedule s;
    enum error_code code = plan_schedule(p, &s, err);
    if (code) return code;
    code = find_stage(e, p, splits_backward(&s), &stage, err);
    if (!code && !stage->there) code = fail(err, ERR_PLAN, "there is no such stage");
    if (!code) code = time_pipeline(out, p, &s, stage, err);
    /* What comes once a step follows the pipeline, and takes longest on the device with most layers. */
    if (!code) *out += stage->ends[OF_REST] + stage->layer[OF_REST] * most_layers(p, &s);
    schedule_free(&s);
    return code;
}
