/* learner.c -- a training step on tiles: waves read, passes, reductions, the optimizer's step; and what they send.
 *
 * cli/train/weather.c and compare.c call these functions.  Errors: ERR_PLAN of a job that cannot be, ERR_MEMORY, and
 * those of messages.  After an error a learner can only be closed.
 */
#include "emulated_devices/weather/learner.h"
#include "emulated_devices/device/compute.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESULT_NUMBERS = 1 + EXACT_LIMBS };      /* the loss, and limbs of the squared norm */

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
    return place[SAMPLES] == 0 && place[ENSEMBLE] == 0 && place[AZIMUTH] == 0 && (cut || place[POLAR] == 0);
}

static void draw_weights(struct weather_learner *learner)
{
    struct views v = views_of(learner->comm->device);
    if (weather_only_counts(learner)) return;
    double *const w = view_write(&v, learner->weights).data;
    for (int i = 0; i < learner->network.params; i++)
        for (int64_t k = 0; k < learner->piece[i].count; k++)
            w[learner->piece[i].at + k] = weather_initial(&learner->network.param[i], learner->job->seed,
                                                          weather_piece_place(learner, i, k));
    views_end(&v);
}

static enum error_code open_memory(struct weather_learner *learner, struct error *err)
{
    const int64_t n = learner->share_at[WEATHER_SHARES], scores = learner->samples.count
        * learner->network.channels[learner->network.output];
    enum error_code e = OK;
    learner->weights = weather_room(learner, PARAMETERS, n, &e, err);
    learner->gradients = weather_room(learner, GRADIENTS, n, &e, err);
    for (int k = 0; k < learner->job->optimizer->states && !e; k++) {
        learner->state[k] = weather_room(learner, OPTIMIZER, n, &e, err);
        if (!e) device_zero(learner->comm->device, learner->state[k]);
    }
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
    struct tensor *const rest[] = { &learner->weights, &learner->gradients, &learner->loss, &learner->d_loss };
    drop_fields(learner);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) weather_learner_drop(learner, rest[i], 1);
    weather_learner_drop(learner, learner->state, OPTIMIZER_MAX_STATES);
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

/* The three sums of gradients: of layers over tiles, of spectra over the orders of a degree, of all over copies.  The
 * gradients of filters are already summed over tiles, by their convolutions. */
struct reduced { struct group *group; enum traffic_kind kind; int64_t first, count; };
enum { REDUCTIONS = 3 };

static void list_reductions(struct weather_learner *learner, struct reduced list[REDUCTIONS])
{
    const int64_t *const at = learner->share_at;
    list[0] = (struct reduced){ &learner->tiling.tiles, TRAFFIC_SPATIAL, at[WEATHER_POINTWISE],
                                at[WEATHER_POINTWISE + 1] - at[WEATHER_POINTWISE] };
    list[1] = (struct reduced){ &learner->tiling.along[AZIMUTH], TRAFFIC_SPATIAL, at[WEATHER_DEGREES],
                                at[WEATHER_DEGREES + 1] - at[WEATHER_DEGREES] };
    list[2] = (struct reduced){ &learner->copies, TRAFFIC_DATA, 0, at[WEATHER_SHARES] };
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
    return e;
}

/* The squares of every number of all gradients, once each; exact, so that the norm does not depend on the mesh. */
static void add_squares(struct weather_learner *learner, struct exact_sum *squares)
{
    struct views v = views_of(learner->comm->device);
    const double *const g = view_read(&v, learner->gradients).data;
    for (int i = 0; i < learner->network.params; i++) {
        const struct weather_piece p = learner->piece[i];
        /* A tensor's data is void *, though only read here. */
        if (weather_piece_is_first(learner, i))
            exact_add_squares(squares, tensor_1d((void *)(uintptr_t)(g + p.at), F64, p.count));
    }
    views_end(&v);
}

static enum error_code share_result(struct weather_learner *learner, struct weather_step *out, struct error *err)
{
    double number[RESULT_NUMBERS] = { weather_only_counts(learner) ? 0 : own_loss(learner) };
    struct exact_sum squares = { .infinite = 0 };
    if (!weather_only_counts(learner)) add_squares(learner, &squares);
    exact_to_numbers(&squares, number + 1);
    const struct collective sum = sum_of(number, RESULT_NUMBERS);
    const enum error_code e = collective_run(&learner->world, ALLREDUCE, NULL, &sum, err);
    exact_from_numbers(&squares, number + 1);
    out->loss = number[0], out->norm = sqrt(exact_value(&squares));
    clock_host_waits(&learner->comm->device->clock, WAIT_NORM);
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
    e = learner_pass(learner, NULL, err);
    drop_fields(learner);
    if (!e) e = reduce_gradients(learner, err);
    if (!e) e = share_result(learner, out, err);
    if (e) comm_give_up(learner->comm, err);
    messages_have_ended(learner->comm, "after the gradients of a step");
    return OK;
}

enum error_code weather_update(struct weather_learner *learner, struct weather_step *out, struct error *err)
{
    const struct weather_job *const job = learner->job;
    const int states = job->optimizer->states;
    const int64_t t = learner->step + 1, n = learner->share_at[WEATHER_SHARES];
    (void)err;
    out->lr = learning_rate(&job->hyper, t);
    for (int i = 0; i < learner->network.params; i++) {
        if (learner->piece[i].count == 0) continue;
        struct tensor state[OPTIMIZER_MAX_STATES] = { tensor_none };
        for (int k = 0; k < states; k++) state[k] = weather_piece_of(learner, learner->state[k], i);
        device_optimizer_step(learner->comm->device, job->optimizer, weather_piece_of(learner, learner->weights, i),
                              weather_piece_of(learner, learner->gradients, i), state,
                              weather_step_of(job, &learner->network.param[i], t, out->norm));
    }
    const struct op_cost cost = { .flops = (double)(n * job->optimizer->operations),
                                  .bytes = (double)(n * (3 + 2 * states)) * sizeof(double) };
    device_charge(learner->comm->device, job->optimizer->name, cost);
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
        account_add(&ledger->of[list[i].kind], group_cost(list[i].group, ALLREDUCE, NULL, &sum), steps);
    }
    const struct collective result = sum_of(NULL, RESULT_NUMBERS);
    account_add(&ledger->of[TRAFFIC_RESULT], group_cost(&learner->world, ALLREDUCE, NULL, &result), steps);
    return e;
}

uint64_t weather_peak(const struct weather_learner *learner, enum arena_tag tag)
{
    const struct weather_network *const n = &learner->network;
    const int64_t own = learner->share_at[WEATHER_SHARES], points = weather_fields(learner)
        * weather_tile_points(learner);
    int64_t numbers = tag == PARAMETERS || tag == GRADIENTS ? own
        : tag == OPTIMIZER ? own * learner->job->optimizer->states : 0;
    if (tag == ACTIVATIONS) {
        for (int i = 0; i < n->slots; i++) numbers += n->channels[i] * points;
        for (int i = 0; i < n->nodes; i++) numbers += weather_kept(learner, i);
        numbers += n->channels[SLOT_STATE] * learner->samples.count * weather_tile_points(learner);
    }
    return (uint64_t)numbers * sizeof(double);
}
