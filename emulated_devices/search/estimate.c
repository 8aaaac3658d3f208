/* estimate.c -- estimates a step from one planned stage and the plan's schedule.  search.c and changes.c call, plan
 * by plan.  Errors: ERR_PLAN where a stage of the plan cannot be planned alone, ERR_MEMORY. */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/search/estimate.h"
#include "emulated_devices/train/dry_run/alike.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one stage --------------------------------------------------------------------------------------------------- */

/* The times of a stage depend on these.  Keys are compared as bytes, so all bytes are set; a scheme's name has one
 * address. */
struct stage_key {
    int dp, cp, tp, ep;
    bool splits;                        /* backward is in two actions */
    unsigned offload;
    int64_t sequences;                  /* of a microbatch */
    const char *tensor, *attention, *dispatch, *data, *recompute;
    struct context_split split;
    int shards[3];
};

enum span_of { OF_FORWARD, OF_INPUT, OF_WEIGHT, OF_REST, PARTS };

struct stage_times {
    struct stage_key key;
    bool there, wide;                   /* wide: more than ESTIMATE_LIVES devices would run */
    picoseconds layer[PARTS], ends[PARTS];      /* of a layer; of embedding, loss and what comes once a step */
    double layer_work, ends_work;       /* operations and messages of a microbatch on all devices that run */
};

/* Plans with equal keys have equal layers.  They differ in their schedules and in how many layers a stage has. */
static struct stage_key estimate_key_of(const struct plan *plan, bool splits)
{
    struct stage_key k;
    memset(&k, 0, sizeof k);
    k.dp = plan->mesh.size[DP], k.cp = plan->mesh.size[CP], k.tp = plan->mesh.size[TP], k.ep = plan->ep;
    k.splits = splits, k.offload = plan->data.offload;
    k.sequences = plan_microbatch(plan, 0, 0).count;
    k.tensor = plan->tensor, k.attention = plan->attention, k.dispatch = plan->dispatch;
    k.data = plan->data.scheme, k.recompute = plan->recompute;
    k.split.heads = plan->split.heads, k.split.window = plan->split.window;
    k.split.context_first = plan->split.context_first;
    memcpy(k.shards, plan->data.shards, sizeof k.shards);
    return k;
}

/* Make a plan of one stage: so many copies, the same devices of cp, ep and tp, so many layers, one microbatch. */
static enum error_code stage_plan(struct plan *q, const struct plan *p, const struct stage_key *stage_key,
                                  int copies, int64_t layers, struct error *err)
{
    int size[AXIS_COUNT];
    memcpy(size, p->mesh.size, sizeof size);
    size[PP] = 1, size[DP] = copies;
    *q = *p;
    q->stage_layers = NULL;
    q->model.L = layers;
    q->micros = q->chunks = 1;
    q->schedule = stage_key->splits ? "zb-h1" : schedule_generator_at(0)->head.name;
    q->B = stage_key->sequences * copies;
    const enum error_code e = mesh_make(&q->mesh, size, err);
    return e ? e : plan_check(q, err);
}

/* These are the longest times of any device: forward, backward for inputs, for weights, and the whole step. */
struct noted { picoseconds part[PARTS], end; double work, opening; };

/* To deal a choice of an expert and to count it takes as long as this part of an operation: a million choices, those of
 * 30 sequences in a layer of deepseek-v3, took 10 ms. */
static const double CHOOSES = 0.01;

/* A stage has one microbatch, and its first layers may be dense. */
static double choosing_work(const struct plan *plan)
{
    const int64_t tokens = plan_microbatch(plan, 0, 0).count * plan->S / plan->mesh.size[CP];
    const int64_t layers = plan->model.L - layer_set_count(&plan->model.dense.at, plan->model.L);
    return plan->model.mlp == MLP_MIXTURE ? CHOOSES * (double)(tokens * plan->model.mixture.k * layers) : 0;
}

/* Note one device's times after its step; dry_run calls this for each device that runs. */
static enum error_code estimate_note(struct trainer *trainer, void *context, struct error *err)
{
    struct noted *n = context;
    picoseconds part[PARTS] = { 0 };
    (void)err;
    for (int i = 0; i < trainer->schedule.count[trainer->pp.rank]; i++) {
        const enum action_kind kind = trainer->schedule.actions[trainer->pp.rank][i].kind;
        const picoseconds took = trainer->times[i].end - trainer->times[i].start;
        part[kind == FORWARD ? OF_FORWARD : kind == BACKWARD_WEIGHT ? OF_WEIGHT : OF_INPUT] += took;
    }
    for (int i = 0; i < OF_REST; i++)
        if (part[i] > n->part[i]) n->part[i] = part[i];
    if (trainer->device->clock.now > n->end) n->end = trainer->device->clock.now;
    n->work += (double)trainer->device->operations + choosing_work(&trainer->plan);
    return OK;
}

/* To open a device takes as long as so many operations, and to list a parameter, of which a mixture has three for each
 * expert of each layer, as long as this part of one: 47,000 of deepseek-v3 took 30 ms, in which 20,000 operations of
 * other plans are done. */
static const double OPENS = 5000, LISTS = 0.4;

double estimate_listing(const struct plan *plan) { return LISTS * model_param_count(&plan->model); }

/* Whether more devices of a stage would run than an estimate may take. */
static bool is_wide(const struct plan *plan)
{
    char unread[200];
    const struct folding f = plan_alike(plan, unread);
    return folding_lives(&f) > ESTIMATE_LIVES;
}

/* Plan one stage of so many copies and layers; OF_REST is what the step takes outside its passes.  ERR_CHECK, without
 * a text: too many devices would run. */
static enum error_code plan_stage(const struct plan *plan, const struct stage_key *stage_key, int copies,
                                  int64_t layers, const struct crew_stop *stop, struct noted *noted,
                                  struct error *err)
{
    struct plan q;
    struct dry_run d = { .crew.events = 0 };
    *noted = (struct noted){ .end = 0 };
    enum error_code e = stage_plan(&q, plan, stage_key, copies, layers, err);
    if (!e && is_wide(&q)) e = ERR_CHECK;
    if (!e) e = dry_run_step(&q, stop, NULL, estimate_note, noted, &d, err);
    noted->work += (double)d.crew.events;
    if (!e) noted->opening = (OPENS + estimate_listing(&q)) * d.crew.lives;
    noted->part[OF_REST] = noted->end - noted->part[OF_FORWARD] - noted->part[OF_INPUT] - noted->part[OF_WEIGHT];
    return e;
}

/* The result is a number of layers that may be a model: the last of them, and the next, are not dense layers of a
 * mixture. */
static int64_t few_layers(const struct model_config *config)
{
    int64_t few = 1;
    while (few < config->L && layer_set_has(&config->dense.at, (int)few - 1)) few++;
    return few;
}

/* A stage with few layers, and with one more. */
struct two_stages { struct noted small, large; };

static enum error_code plan_two(struct two_stages *two, const struct plan *plan, const struct stage_key *stage_key,
                                int copies, struct estimator *estimator, struct error *err)
{
    const int64_t few = few_layers(&plan->model);
    enum error_code e = plan_stage(plan, stage_key, copies, few, estimator->stop, &two->small, err);
    if (!e && plan->model.L == few) two->large = two->small;
    else if (!e) e = plan_stage(plan, stage_key, copies, few + 1, estimator->stop, &two->large, err);
    if (!e) estimator->worked += two->small.work + two->large.work + two->small.opening + two->large.opening;
    return e;
}

/* A time that grows by the same with each copy: with `copies` of them, from the times with half as many as
 * ESTIMATE_COPIES, and with so many. */
static double with_copies(double half, double most, int copies)
{
    return fmax(0, most + (most - half) * (copies - ESTIMATE_COPIES) / (ESTIMATE_COPIES / 2));
}

static void noted_with_copies(struct noted *most, const struct noted *half, int copies)
{
    for (int i = 0; i < PARTS; i++)
        most->part[i] = (picoseconds)with_copies((double)half->part[i], (double)most->part[i], copies);
    most->work = with_copies(half->work, most->work, copies);
}

/* Few copies can stand for all unless they would cut experts otherwise. */
static bool has_few_copies(const struct stage_key *stage_key)
{
    const int half = ESTIMATE_COPIES / 2 * stage_key->cp * stage_key->tp;
    return stage_key->dp > ESTIMATE_COPIES && half % stage_key->ep == 0;
}

/* The difference of a stage with a layer more is that layer; the rest is what a model has once.  Where no layer is left
 * to add, all of the time is the layers'. */
static void split_times(struct stage_times *times, const struct two_stages *two, int64_t L, int64_t few)
{
    const struct noted *const small = &two->small, *const large = &two->large;
    /* layer = time of few + 1 layers - time of few layers; ends = time of few layers - few layer. */
    for (int i = 0; i < PARTS; i++) {
        const picoseconds more = large->part[i] - small->part[i];
        times->layer[i] = few == L ? small->part[i] / L : more > 0 ? more : 0;
        times->ends[i] = small->part[i] > few * times->layer[i] ? small->part[i] - few * times->layer[i] : 0;
    }
    times->layer_work = few == L ? small->work / (double)L : fmax(0, large->work - small->work);
    times->ends_work = fmax(0, small->work - (double)few * times->layer_work);
}

static enum error_code time_stage(struct stage_times *times, const struct plan *plan, struct estimator *estimator,
                                  struct error *err)
{
    const struct stage_key *const key = &times->key;
    const bool few = has_few_copies(key);
    struct two_stages most, half;
    enum error_code e = few ? plan_two(&half, plan, key, ESTIMATE_COPIES / 2, estimator, err) : OK;
    if (!e) e = plan_two(&most, plan, key, few ? ESTIMATE_COPIES : key->dp, estimator, err);
    if (!e && few)
        noted_with_copies(&most.small, &half.small, key->dp), noted_with_copies(&most.large, &half.large, key->dp);
    if (!e) split_times(times, &most, plan->model.L, few_layers(&plan->model));
    times->there = e == OK, times->wide = e == ERR_CHECK;
    /* A stage that cannot be planned is kept as such, so that nobody tries again. */
    return e == ERR_MEMORY || e == ERR_STOPPED ? e : OK;
}

/* Find the times of a stage by its key, or plan the stage now and keep its times. */
static enum error_code find_stage(struct estimator *estimator, const struct plan *plan, bool splits,
                                  const struct stage_times **out, struct error *err)
{
    const struct stage_key key = estimate_key_of(plan, splits);
    for (int i = 0; i < estimator->count; i++)
        if (memcmp(&estimator->known[i].key, &key, sizeof key) == 0) return *out = &estimator->known[i], OK;
    if (estimator->count == estimator->room) {
        struct stage_times *more = realloc(estimator->known,
                                           (size_t)(estimator->room = 2 * estimator->room + 64) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %d stages", estimator->room);
        estimator->known = more;
    }
    struct stage_times *s = &estimator->known[estimator->count++];
    *s = (struct stage_times){ .key = key };
    estimator->planned++;
    *out = s;
    return time_stage(s, plan, estimator, err);
}

void estimator_close(struct estimator *estimator)
{
    free(estimator->known);
    *estimator = (struct estimator){ 0 };
}

/* ---- a schedule of stages ---------------------------------------------------------------------------------------- */

/* Whether the schedule has backward passes in two parts; the first device tells for all. */
static bool splits_backward(const struct schedule *schedule)
{
    for (int i = 0; i < schedule->count[0]; i++)
        if (schedule->actions[0][i].kind == BACKWARD_INPUT) return true;
    return false;
}

/* A microbatch's way to the next stage takes latency, gap and bytes / rate of the link between both. */
static picoseconds estimate_hop(const struct plan *plan)
{
    const struct cluster *c = plan->cluster;
    const int stage = plan_stage_devices(plan);
    if (c == NULL || plan->mesh.size[PP] == 1) return 0;
    const struct link *l = &c->link[cluster_level(c, 0, stage)];
    const uint64_t bytes = (uint64_t)(plan_microbatch(plan, 0, 0).count * plan->S / plan->mesh.size[CP]
                                      * plan->model.D) *
                           dtype_size(plan->dtype);
    return l->latency + l->gap + time_at_rate(bytes, l->rate);
}

/* Consecutive layers belong to a stage, so two first layers give their number. */
static int64_t layers_of_stage(const struct plan *plan, int stage)
{
    return plan->first_layer[stage + 1] - plan->first_layer[stage];
}

/* Put the stages' times into the schedule: room [3, stages] has forward, input and weight times.  The last stage
 * also has what comes once: the loss, and for simplicity the embedding. */
static enum error_code time_pipeline(picoseconds *makespan, const struct plan *plan, const struct schedule *schedule,
                                     const struct stage_times *stage_times, struct error *err)
{
    const size_t n = (size_t)schedule->stages;
    int64_t *room = calloc(3 * n, sizeof *room);
    struct timing timing;
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %d stages", schedule->stages);
    for (size_t i = 0; i < 3 * n; i++)
        room[i] = stage_times->layer[i / n] * layers_of_stage(plan, (int)(i % n))
            + (i % n == n - 1 ? stage_times->ends[i / n] : 0);
    const struct schedule_times times = { room, room + n, room + 2 * n, estimate_hop(plan), 0 };
    const enum error_code e = schedule_time(&timing, schedule, &times, err);
    if (!e) *makespan = timing.makespan, timing_free(&timing);
    free(room);
    return e;
}

/* The result is the number of layers of the device with most. */
static int64_t most_layers(const struct plan *plan, const struct schedule *schedule)
{
    int64_t most = 0;
    for (int d = 0; d < schedule->devices; d++) {
        int64_t sum = 0;
        for (int c = 0; c < schedule->chunks; c++)
            if (schedule->stage_of[d][c] >= 0) sum += layers_of_stage(plan, schedule->stage_of[d][c]);
        most = sum > most ? sum : most;
    }
    return most;
}

enum error_code estimate_step(struct estimator *estimator, const struct plan *plan, struct estimate *out,
                              struct error *err)
{
    const struct stage_times *stage = NULL;
    struct schedule s;
    *out = (struct estimate){ INT64_MAX, INFINITY };
    enum error_code code = plan_schedule(plan, &s, err);
    if (code) return code;
    code = find_stage(estimator, plan, splits_backward(&s), &stage, err);
    if (!code && !stage->there && !stage->wide) code = fail(err, ERR_PLAN, "there is no such stage");
    if (!code && stage->there) {
        code = time_pipeline(&out->time, plan, &s, stage, err);
        /* The rest of a step comes once, follows the pipeline, and takes longest on the device with most layers. */
        if (!code) out->time += stage->ends[OF_REST] + stage->layer[OF_REST] * most_layers(plan, &s);
        out->work = plan->micros * (stage->layer_work * (double)plan->model.L + stage->ends_work);
    }
    schedule_free(&s);
    return code;
}
