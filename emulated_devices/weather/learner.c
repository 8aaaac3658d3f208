/* learner.c -- a training step on tiles: waves read, passes, reductions, the optimizer's step; and what they send.
 *
 * cli/train/weather.c and compare.c call these functions.  Errors: ERR_PLAN of a job that cannot be, ERR_MEMORY, and
 * those of messages.  After an error a learner can only be closed.
 */
#include "emulated_devices/weather/learner.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/units.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULT_NUMBERS = 1 + EXACT_LIMBS };      /* the loss, and limbs of the squared norm */

#define BUCKET_OF_ALL ((int64_t)1 << 60)        /* bytes: all gradients are in one exchange */

int weather_devices(const struct weather_job *job)
{
    int n = 1;
    for (int a = 0; a < TILE_AXES; a++) n *= job->size[a];
    return n;
}

enum error_code weather_check(const struct weather_job *job, struct error *err)
{
    const struct weather_shape *const s = job->shape;
    const struct { const char *flag; enum tile_axis axis; int64_t most; const char *of; } rule[] = {
        { "--dp", SAMPLES, job->samples, "samples of the batch" },
        { "--ensemble", ENSEMBLE, job->members, "members of the ensemble" },
        { "--polar", POLAR, s->nlat < s->degrees ? s->nlat : s->degrees, "rows and degrees: a tile must have one" },
        { "--azimuth", AZIMUTH, s->nlon < s->degrees ? s->nlon : s->degrees,
          "longitudes and orders: a tile must have one" },
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (job->size[rule[i].axis] > rule[i].most)
            return fail(err, ERR_PLAN, "%s %d: %s has %lld %s", rule[i].flag, job->size[rule[i].axis],
                        rule[i].axis == SAMPLES || rule[i].axis == ENSEMBLE ? "the run" : s->name,
                        (long long)rule[i].most, rule[i].of);
    if (job->members < 2 && job->alpha > 0)
        return fail(err, ERR_PLAN, "--members %lld: the fair score compares members with each other; give 2 or more, "
                    "or --fairness 0", (long long)job->members);
    return OK;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

/* The pieces of parameters stand as in the whole vector; of a spectral convolution, own degrees alone. */
static void lay_pieces(struct weather_learner *learner)
{
    const struct weather_network *const n = &learner->network;
    int64_t at = 0;
    for (enum weather_share share = 0; share < WEATHER_SHARES; share++) {
        learner->share_at[share] = at;
        for (int i = 0; i < n->params; i++) {
            const struct weather_param *const p = &n->param[i];
            if (p->share != share) continue;
            const int64_t count = share == WEATHER_DEGREES ? p->count / p->size[2] * learner->degrees.count : p->count;
            learner->piece[i] = (struct weather_piece){ at, count };
            at += count;
        }
    }
    learner->share_at[WEATHER_SHARES] = at;
}

int64_t weather_piece_place(const struct weather_learner *learner, int param, int64_t i)
{
    const struct weather_param *const p = &learner->network.param[param];
    const int64_t own = learner->degrees.count;
    if (p->share != WEATHER_DEGREES) return i;
    /* [in, out, own degrees, 2] lies in [in, out, degrees, 2]. */
    return (i / (2 * own) * p->size[2] + learner->degrees.first + i / 2 % own) * 2 + i % 2;
}

bool weather_piece_is_first(const struct weather_learner *learner, int param)
{
    const int *const place = learner->tiling.place;
    const bool cut = learner->network.param[param].share == WEATHER_DEGREES;
    return place[AZIMUTH] == 0 && (cut || place[POLAR] == 0);
}

static struct unit *weather_unit(const struct weather_learner *learner)
{
    for (int u = 0; u < learner->data.units; u++)
        if (learner->data.unit[u].count > 0) return &learner->data.unit[u];
    return NULL;
}

struct weather_own weather_own_of(const struct weather_learner *learner, enum tensor_kind kind)
{
    const struct unit *const unit = weather_unit(learner);
    const struct shards *const shards = &learner->data.shards;
    return (struct weather_own){ data_kept_tensor(&learner->data, unit, kind), data_kept(shards, unit, kind),
                                 data_keeps_first(shards, kind) };
}

struct interval weather_owned(const struct weather_learner *learner, const struct weather_own *own, int param)
{
    const struct weather_piece p = learner->piece[param];
    const struct interval here = interval_meet((struct interval){ p.at, p.count }, own->part);
    return interval_moved(here, -p.at);
}

static void draw_weights(struct weather_learner *learner)
{
    const struct weather_own own = weather_own_of(learner, KIND_WEIGHT);
    struct views v = views_of(learner->comm->device);
    if (weather_only_counts(learner)) return;
    double *const w = view_write(&v, own.numbers).data;
    for (int i = 0; i < learner->network.params; i++) {
        const struct interval here = weather_owned(learner, &own, i);
        for (int64_t k = here.first; k < interval_end(here); k++)
            w[learner->piece[i].at + k - own.part.first] =
                weather_initial(&learner->network.param[i], learner->job->seed, weather_piece_place(learner, i, k));
    }
    views_end(&v);
}

/* A parameter as the data room knows it: a matrix whose columns are the degrees' numbers, or a vector. */
static void describe_piece(const struct weather_learner *learner, int param, struct parameter *out)
{
    const struct weather_param *const p = &learner->network.param[param];
    const bool cut = p->share == WEATHER_DEGREES;
    const int64_t columns = cut ? p->size[2] * p->size[3] : p->count / p->size[0];
    *out = (struct parameter){ .index = param, .holders = 1 };
    struct param_spec *const spec = &out->spec;
    *spec = (struct param_spec){ .role = ROLE_UP, .expert = -1, .ndim = p->dims > 1 ? 2 : 1, .mean = p->mean,
                                 .std = p->deviation, .decay = p->dims > 1, .parts = 1 };
    snprintf(spec->name, sizeof spec->name, "%s", p->name);
    spec->dim[0] = p->dims > 1 ? p->count / columns : p->count, spec->dim[1] = p->dims > 1 ? columns : 0;
    out->layout = cut ? layout_none(2, spec->dim) : layout_whole(spec->ndim, spec->dim);
    if (cut) layout_add(&out->layout, 1, p->size[3] * learner->degrees.first, p->size[3] * learner->degrees.count);
    /* The data room knows the devices with other samples or members, and not those with other tiles. */
    out->counted = weather_piece_is_first(learner, param) ? layout_count(&out->layout) : 0;
}

/* All parameters are one part, in the order of shares. */
static enum error_code outline_data(struct weather_learner *learner, struct error *err)
{
    static const char *const scheme[] = { "ddp", "zero1" };
    static const struct use of_step[] = { { .part = PART_ALONE, .pass = PASS_FORWARD },
                                          { .part = PART_ALONE, .pass = PASS_BACKWARD_WEIGHT } };
    const struct weather_job *const job = learner->job;
    struct parameters *const list = &learner->parameters;
    struct data_parallel *const d = &learner->data;
    list->all = calloc((size_t)learner->network.params, sizeof *list->all);
    struct use *const use = malloc(sizeof of_step);
    if (list->all == NULL || use == NULL) {
        free(use);
        return fail(err, ERR_MEMORY, "no memory for a list of %d parameters", learner->network.params);
    }
    memcpy(use, of_step, sizeof of_step);
    for (enum weather_share share = 0; share < WEATHER_SHARES; share++)
        for (int i = 0; i < learner->network.params; i++)
            if (learner->network.param[i].share == share) describe_piece(learner, i, &list->all[list->count++]);
    for (int turn = 0; turn < PARAMETER_TURNS; turn++) list->end[turn] = list->count;
    *d = (struct data_parallel){
        .request = { .scheme = scheme[job->zero], .bucket = BUCKET_OF_ALL, .no_prefetch = true },
        .config = &model_of_one_part, .device = learner->comm->device, .group = &learner->copies, .parameters = list,
        .optimizer = job->optimizer, .hyper = &job->hyper, .versions = 1,
    };
    enum error_code e = data_scheme_find(&d->scheme, d->request.scheme, err);
    if (!e) e = data_outline(d, err);
    if (e) free(use);
    else data_set_uses(d, use, sizeof of_step / sizeof *of_step);
    return e;
}

static enum error_code open_memory(struct weather_learner *learner, struct error *err)
{
    const int64_t scores = learner->samples.count * learner->network.channels[learner->network.output];
    enum error_code e = outline_data(learner, err);
    if (!e) e = data_fill(&learner->data, learner->job->seed, err);
    learner->loss = weather_room(learner, BUFFERS, scores, &e, err);
    learner->d_loss = weather_room(learner, BUFFERS, scores, &e, err);
    if (!e) draw_weights(learner);
    return e;
}

/* The transforms' tables of a large model take as much memory as its weights, and nobody reads them without numbers. */
static enum error_code open_table(struct weather_learner *learner, struct error *err)
{
    const struct weather_job *const job = learner->job;
    if (job->network) learner->network = *job->network;
    else if (weather_only_counts(learner)) return weather_open_without(&learner->network, job->shape, err);
    else return weather_open(&learner->network, job->shape, err);
    return OK;
}

/* A device's tables and memory are its own, so devices agree before the first message. */
enum error_code weather_learner_open(struct weather_learner *learner, const struct weather_job *job, struct comm *comm,
                                     struct error *err)
{
    *learner = (struct weather_learner){ .job = job, .comm = comm };
    enum error_code e = open_table(learner, err);
    if (e) return comm_agree(comm, e, err);
    e = tiling_open(&learner->tiling, comm, job->size, err);
    if (!e) {
        const struct weather_shape *const s = job->shape;
        const struct tiling *const t = &learner->tiling;
        learner->samples = tiling_part(t, SAMPLES, job->samples), learner->members = tiling_part(t, ENSEMBLE,
                                                                                                 job->members);
        learner->rows = tiling_part(t, POLAR, s->nlat), learner->columns = tiling_part(t, AZIMUTH, s->nlon);
        learner->degrees = tiling_part(t, POLAR, s->degrees), learner->orders = tiling_part(t, AZIMUTH, s->degrees);
        lay_pieces(learner);
        e = tiling_group(&learner->copies, comm, job->size, 1u << SAMPLES | 1u << ENSEMBLE, TRAFFIC_DATA, err);
    }
    if (!e) e = tiling_group(&learner->world, comm, job->size, (1u << TILE_AXES) - 1, TRAFFIC_RESULT, err);
    if (!e) e = open_memory(learner, err);
    e = comm_agree(comm, e, err);
    if (e) weather_learner_close(learner);
    return e;
}

/* Free the fields of a pass. */
static void weather_learner_drop(struct weather_learner *learner, struct tensor *of, int count)
{
    for (int i = 0; i < count; i++) {
        if (of[i].data) device_free(learner->comm->device, of[i]);
        of[i] = tensor_none;
    }
}

static void drop_fields(struct weather_learner *learner)
{
    weather_learner_drop(learner, learner->slot, learner->network.slots);
    weather_learner_drop(learner, learner->slope, learner->network.slots);
    weather_learner_drop(learner, learner->kept, learner->network.nodes);
    weather_learner_drop(learner, &learner->next, 1);
}

void weather_learner_close(struct weather_learner *learner)
{
    struct tensor *const rest[] = { &learner->loss, &learner->d_loss };
    drop_fields(learner);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) weather_learner_drop(learner, rest[i], 1);
    data_close(&learner->data);
    free(learner->parameters.all);
    group_close(&learner->copies), group_close(&learner->world);
    tiling_close(&learner->tiling);
    if (!learner->job->network) weather_close(&learner->network);
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* Copy this device's tile of whole fields. */
static void cut_tile(const struct weather_learner *learner, const double *whole, int64_t fields, double *tile)
{
    const struct weather_shape *const s = learner->job->shape;
    for (int64_t f = 0; f < fields; f++)
        for (int64_t i = 0; i < learner->rows.count; i++, tile += learner->columns.count)
            memcpy(tile, whole + (f * s->nlat + learner->rows.first + i) * s->nlon + learner->columns.first,
                   (size_t)learner->columns.count * sizeof *tile);
}

/* Draw the own samples' waves, and the noise of own members; each device draws whole fields and keeps its tile. */
static enum error_code read_batch(struct weather_learner *learner, struct error *err)
{
    const struct weather_network *const n = &learner->network;
    const uint64_t seed = learner->job->seed;
    const int64_t channels = n->channels[SLOT_STATE], noise = n->channels[SLOT_NOISE],
        points = weather_points(&n->shape), tile = weather_tile_points(learner), B = learner->samples.count;
    double *const now = calloc((size_t)(channels * points), sizeof *now),
           *const next = calloc((size_t)(channels * points), sizeof *next);
    enum error_code e = now && next ? OK : fail(err, ERR_MEMORY, "no memory for a sample of the globe");
    struct views v = views_of(learner->comm->device);
    double *const state_tile = e ? NULL : view_write(&v, learner->slot[SLOT_STATE]).data,
           *const noise_tile = e ? NULL : view_write(&v, learner->slot[SLOT_NOISE]).data,
           *const next_tile = e ? NULL : view_write(&v, learner->next).data;
    for (int64_t b = 0; b < B && !e; b++) {
        const int64_t sample = learner->samples.first + b;
        e = weather_wave(n, seed, learner->step, sample, now, next, err);
        if (!e) cut_tile(learner, next, channels, next_tile + b * channels * tile);
        for (int64_t m = 0; m < learner->members.count && !e; m++)
            cut_tile(learner, now, channels, state_tile + (m * B + b) * channels * tile);
        for (int64_t m = 0; m < learner->members.count && !e; m++) {
            e = weather_noise(n, seed, learner->step, sample, learner->members.first + m, now, err);
            if (!e) cut_tile(learner, now, noise, noise_tile + (m * B + b) * noise * tile);
        }
    }
    views_end(&v);
    free(now), free(next);
    return e;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static struct spatial_score score_of(const struct weather_learner *learner)
{
    return (struct spatial_score){ &learner->network.harmonics, learner->job->members,
                                   learner->samples.count * learner->network.channels[SLOT_STATE],
                                   learner->job->alpha };
}

static enum error_code open_fields(struct weather_learner *learner, struct error *err)
{
    const struct weather_network *const n = &learner->network;
    const int64_t points = weather_fields(learner) * weather_tile_points(learner);
    enum error_code e = OK;
    for (int i = 0; i < n->slots; i++)
        learner->slot[i] = weather_room(learner, ACTIVATIONS, n->channels[i] * points, &e, err);
    for (int i = 0; i < n->nodes; i++)
        if (weather_kept(learner, i) > 0)
            learner->kept[i] = weather_room(learner, ACTIVATIONS, weather_kept(learner, i), &e, err);
    learner->next = weather_room(learner, ACTIVATIONS, n->channels[SLOT_STATE] * learner->samples.count
                                 * weather_tile_points(learner), &e, err);
    for (int i = SLOTS_GIVEN; i < n->slots; i++) {
        learner->slope[i] = weather_room(learner, BUFFERS, n->channels[i] * points, &e, err);
        if (!e) device_zero(learner->comm->device, learner->slope[i]);
    }
    return e;
}

/* Every sample and channel counts alike, in the mean over all of the batch. */
static void set_slopes(struct weather_learner *learner)
{
    const int64_t channels = learner->network.channels[SLOT_STATE], own = learner->samples.count * channels;
    struct views v = views_of(learner->comm->device);
    double *const slope = view_write(&v, learner->d_loss).data;
    for (int64_t i = 0; i < own; i++) slope[i] = 1.0 / (double)(learner->job->samples * channels);
    views_end(&v);
}

/* The sum of the own samples' scores, divided by those of the batch; devices of one copy have the same. */
static double own_loss(struct weather_learner *learner)
{
    const int64_t channels = learner->network.channels[SLOT_STATE], own = learner->samples.count * channels;
    const int *const place = learner->tiling.place;
    struct views v = views_of(learner->comm->device);
    const double *const loss = view_read(&v, learner->loss).data;
    double sum = 0;
    for (int64_t i = 0; i < own; i++) sum += loss[i];
    views_end(&v);
    return place[ENSEMBLE] + place[POLAR] + place[AZIMUTH] == 0
        ? sum / (double)(learner->job->samples * channels) : 0;
}

/* Forward, score, backward.  cost: only add what would be sent. */
static enum error_code learner_pass(struct weather_learner *learner, struct account *cost, struct error *err)
{
    const struct weather_network *const n = &learner->network;
    const struct spatial_score score = score_of(learner);
    /* A cost walk reads no tensor, but the score's way back is walked only if a gradient is wanted. */
    const struct tensor slope = cost ? learner->d_loss : learner->slope[n->output];
    enum error_code e = OK;
    for (int i = 0; i < n->nodes && !e; i++) e = weather_node_forward(learner, i, cost, err);
    if (!e) e = spatial_crps(&learner->tiling, &score, learner->slot[n->output], learner->next, learner->loss,
                             learner->d_loss, slope, cost, err);
    for (int i = n->nodes - 1; i >= 0 && !e; i--) e = weather_node_backward(learner, i, cost, err);
    return e;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* The two sums of gradients over tiles: of layers over all, of spectra over the orders of a degree.  The gradients of
 * filters are already summed over tiles, by their convolutions. */
struct reduced { struct group *group; int64_t first, count; };
enum { REDUCTIONS = 2 };

static void list_reductions(struct weather_learner *learner, struct reduced list[REDUCTIONS])
{
    const int64_t *const at = learner->share_at;
    list[0] = (struct reduced){ &learner->tiling.tiles, at[WEATHER_POINTWISE],
                                at[WEATHER_POINTWISE + 1] - at[WEATHER_POINTWISE] };
    list[1] = (struct reduced){ &learner->tiling.along[AZIMUTH], at[WEATHER_DEGREES],
                                at[WEATHER_DEGREES + 1] - at[WEATHER_DEGREES] };
}

static struct collective sum_of(void *at, int64_t count)
{
    return (struct collective){ .in = at, .out = at, .count = count, .dtype = F64, .reduction = SUM };
}

static enum error_code reduce_gradients(struct weather_learner *learner, struct error *err)
{
    struct reduced list[REDUCTIONS];
    enum error_code e = OK;
    list_reductions(learner, list);
    for (int i = 0; i < REDUCTIONS && !e; i++) {
        const struct collective sum = sum_of((char *)learner->gradients.data + (uint64_t)list[i].first * sizeof(double),
                                             list[i].count);
        if (list[i].count > 0) e = collective_run(list[i].group, ALLREDUCE, NULL, &sum, err);
    }
    if (!e) e = data_end_gradient(&learner->data, PART_ALONE, err);
    return e ? e : data_finish_gradients(&learner->data, err);
}

static enum error_code share_result(struct weather_learner *learner, struct weather_step *out, struct error *err)
{
    double number[RESULT_NUMBERS] = { weather_only_counts(learner) ? 0 : own_loss(learner) };
    struct exact_sum squares = { .infinite = 0 };
    /* Exact, and each gradient once, so that the norm does not depend on the mesh. */
    data_norm_part(&learner->data, &squares);
    exact_to_numbers(&squares, number + 1);
    const struct collective sum = sum_of(number, RESULT_NUMBERS);
    const enum error_code e = collective_run(&learner->world, ALLREDUCE, NULL, &sum, err);
    exact_from_numbers(&squares, number + 1);
    out->loss = number[0], out->norm = sqrt(exact_value(&squares));
    clock_host_waits(&learner->comm->device->clock, WAIT_NORM);
    return e;
}

/* Weights are whole on every device at all times, so the passes read them where they are kept. */
static enum error_code open_gradients(struct weather_learner *learner, struct error *err)
{
    struct unit *const unit = weather_unit(learner);
    data_expect_step(&learner->data, learner->step + 1);
    enum error_code e = data_acquire(&learner->data, PART_ALONE, err);
    if (!e) data_release(&learner->data, PART_ALONE), e = data_begin_gradient(&learner->data, PART_ALONE, err);
    learner->weights = unit->w, learner->gradients = unit->g;
    return e;
}

enum error_code weather_gradients(struct weather_learner *learner, struct weather_step *out, struct error *err)
{
    enum error_code e = open_fields(learner, err);
    if (!e && !weather_only_counts(learner)) e = read_batch(learner, err);
    /* Until here a device can fail alone; later the others wait for its messages. */
    e = comm_agree(learner->comm, e, err);
    if (e) return e;
    if (!weather_only_counts(learner)) set_slopes(learner);
    e = open_gradients(learner, err);
    if (!e) e = learner_pass(learner, NULL, err);
    drop_fields(learner);
    if (!e) e = reduce_gradients(learner, err);
    if (!e) e = share_result(learner, out, err);
    if (e) comm_give_up(learner->comm, err);
    messages_have_ended(learner->comm, "after the gradients of a step");
    return OK;
}

enum error_code weather_update(struct weather_learner *learner, struct weather_step *out, struct error *err)
{
    const struct hyperparameters *const hyper = &learner->job->hyper;
    const int64_t t = learner->step + 1;
    out->lr = learning_rate(hyper, t);
    enum error_code e = data_step(&learner->data, t, clip_scale(hyper, out->norm), err);
    if (e) comm_give_up(learner->comm, err);
    clock_end_step(&learner->comm->device->clock);
    learner->step++;
    return OK;
}

struct step weather_step_of(const struct weather_job *job, const struct weather_param *param, int64_t t, double norm)
{
    return (struct step){ .lr = learning_rate(&job->hyper, t), .t = t, .hyper = &job->hyper,
                          .weight_decay = weight_decay_of(&job->hyper, param->dims > 1),
                          .gradient_scale = clip_scale(&job->hyper, norm) };
}

/* ---- predictions ------------------------------------------------------------------------------------------------- */

enum error_code weather_predict(struct weather_learner *learner, int64_t steps, struct ledger *ledger,
                                struct error *err)
{
    struct reduced list[REDUCTIONS];
    struct account spatial = { 0 };
    *ledger = (struct ledger){ 0 };
    const enum error_code e = learner_pass(learner, &spatial, err);
    account_add(&ledger->of[TRAFFIC_SPATIAL], spatial, steps);
    list_reductions(learner, list);
    for (int i = 0; i < REDUCTIONS; i++) {
        const struct collective sum = sum_of(NULL, list[i].count);
        account_add(&ledger->of[TRAFFIC_SPATIAL], group_cost(list[i].group, ALLREDUCE, NULL, &sum), steps);
    }
    account_add(&ledger->of[TRAFFIC_DATA], data_cost(&learner->data), steps);
    const struct collective result = sum_of(NULL, RESULT_NUMBERS);
    account_add(&ledger->of[TRAFFIC_RESULT], group_cost(&learner->world, ALLREDUCE, NULL, &result), steps);
    return e;
}

uint64_t weather_peak(const struct weather_learner *learner, enum arena_tag tag)
{
    const struct weather_network *const n = &learner->network;
    const int64_t points = weather_fields(learner) * weather_tile_points(learner);
    const struct model_state kept = data_peak(&learner->data);
    int64_t numbers = n->channels[SLOT_STATE] * learner->samples.count * weather_tile_points(learner);
    if (tag != ACTIVATIONS)
        return tag == PARAMETERS ? kept.weights : tag == GRADIENTS ? kept.gradients : kept.optimizer;
    for (int i = 0; i < n->slots; i++) numbers += n->channels[i] * points;
    for (int i = 0; i < n->nodes; i++) numbers += weather_kept(learner, i);
    return (uint64_t)numbers * sizeof(double);
}
