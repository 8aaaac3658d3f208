/* scattering.c -- reduces gradients unit by unit, as soon as backward has finished them: if they are kept in shards,
 * after each pass to the devices that keep them; after the last pass to the devices that step them.
 *
 * data_begin_gradient, data_end_gradient and data_finish_gradients reach this stage through the chain.  All devices
 * of a level reduce the same units in the same order.  Errors are ERR_MEMORY, ERR_COMM and ERR_FILE.
 */
#include "emulated_devices/schemes/data/stages/scattering.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>

/* ---- reducing ---------------------------------------------------------------------------------------------------- */

/* A unit's whole gradient as the row that is cut: itself, or a copy if parameters are cut by rows. */
static enum error_code open_row(struct data_parallel *dp, const struct unit *unit, struct tensor *row,
                                struct error *err)
{
    *row = unit->g;
    if (unit->rows == 0) return OK;
    *row = device_tensor_in(dp->device, BUFFERS, unit->g.dtype, unit->padded);
    if (row->data == NULL)
        return fail(err, ERR_MEMORY, "no memory to reduce the gradient of %s", unit->parameter[0].spec.name);
    unit_from_whole(dp->device, unit, (struct interval){ 0, unit->padded }, row->data, unit->g.data, row->dtype);
    return OK;
}

/* Add the received part of a unit's gradient to the kept one; free the whole gradient. */
static enum error_code add_to_kept(struct data_parallel *dp, struct unit *unit, struct tensor row,
                                   struct tracking tracking, struct error *err)
{
    const struct interval kept = shards_range(&unit->over->shards, BY_GRADIENTS, unit->padded);
    const enum error_code e = take_sum(dp, unit, err);
    /* own_g += the received part: several microbatches add up in the shard. */
    if (!e) dev_add(dp->device, unit->sum, unit->sum, slice(row, kept));
    clock_made(&dp->device->clock, unit->sum.data, tensor_bytes(unit->sum));
    if (!e && tracked(tracking))
        tracking_add(dp->device, unit->tracking, tracking_from(tracking, kept.first), unit->sum);
    if (unit->rows > 0) device_free(dp->device, row);
    device_free(dp->device, unit->g);
    return e;
}

/* Reduce-scatter gradients that are kept in shards to the devices that keep them.  Tracked units are sent alone. */
static enum error_code scattering_scatter(struct data_parallel *dp, const struct bucket *bucket, struct tensor row[],
                                          struct tensor half[], struct error *err)
{
    struct tracking t = { 0 };
    enum error_code e = OK;
    struct interval cut = { 0 };
    for (int i = 0; i < bucket->units && !e; i++) {
        const struct unit *u = &dp->unit[bucket->unit[i]];
        /* half is the part of the row that is left after the first level. */
        cut = shards_range(&u->over->shards, BY_WEIGHTS, u->padded);
        e = open_row(dp, u, &row[i], err);
        half[i] = slice(row[i], cut);
    }
    if (!e && tracked(dp->unit[bucket->unit[0]].tracking)) e = tracking_open(&t, tensor_count(row[0]), err);
    if (!e && tracked(t)) tracking_start(dp->device, t, row[0]);
    /* Sums run first among the devices that cut weights, then among those that cut gradients further. */
    if (!e) e = bucket_reduce_scatter(dp, bucket->over, BY_WEIGHTS, row, bucket->units, t, err);
    if (!e) e = bucket_reduce_scatter(dp, bucket->over, BY_GRADIENTS, half, bucket->units,
                                      tracking_from(t, cut.first), err);
    for (int i = 0; i < bucket->units && !e; i++) e = add_to_kept(dp, &dp->unit[bucket->unit[i]], row[i], t, err);
    tracking_close(&t);
    return e;
}

/* The all-reduce among copies does not quantise, but sums exact values and bounds. */
static enum error_code track_copies(struct unit *unit, struct error *err)
{
    struct group *g = &unit->over->level[BY_COPIES];
    if (g->size == 1 || !tracked(unit->tracking)) return OK;
    /* Tracking is no part of the model's traffic, so its messages count as control. */
    struct exchange control = exchange_begin(g, CONTROL);
    return tracking_sum(&control, g->size, NULL, data_own_tracking(unit),
                        slice(unit->sum, stepped_gradients(unit)), err);
}

/* After the last microbatch: reduce to the device that steps them, and over copies. */
static enum error_code reduce_last(struct data_parallel *dp, const struct bucket *bucket, struct tensor row[],
                                   struct tensor own[], struct error *err)
{
    struct unit *last = NULL;
    int n = 0;
    for (int i = 0; i < bucket->units; i++) {
        struct unit *u = &dp->unit[bucket->unit[i]];
        /* Another microbatch will still add to this unit. */
        if (u->due > 0) continue;
        row[n] = u->sum;
        own[n++] = slice(u->sum, stepped_gradients(u));
        last = u;
    }
    if (n == 0) return OK;
    if (tracked(last->tracking) && bucket->over->shards.gradients == 1)
        tracking_start(dp->device, last->tracking, last->sum);
    /* The kept sum is cut among those that step it, then summed over copies of the shards. */
    enum error_code e = bucket_reduce_scatter(dp, bucket->over, BY_OPTIMIZER, row, n, last->tracking, err);
    if (!e) e = bucket_allreduce(dp, bucket->over, BY_COPIES, own, n, err);
    return e ? e : track_copies(last, err);
}

/* Free the whole gradient, if only the sum is kept. */
static void scattering_leave(struct unit *unit)
{
    if (!unit->passing_g) return;
    unit->g.data = NULL;
    show_gradients(unit);
}

/* Reduce all waiting units, in one exchange for each level. */
static enum error_code reduce_waiting(struct data_parallel *dp, struct bucket *bucket, struct error *err)
{
    enum error_code e = OK;
    if (bucket->units == 0) return OK;
    struct tensor *row = calloc((size_t)bucket->units * 2, sizeof *row), *part = row + bucket->units;
    if (row == NULL) return fail(err, ERR_MEMORY, "no memory for a bucket of %d units", bucket->units);
    if (bucket->over->shards.gradients > 1) e = scattering_scatter(dp, bucket, row, part, err);
    if (!e) e = reduce_last(dp, bucket, row, part, err);
    for (int i = 0; i < bucket->units; i++) {
        struct unit *u = &dp->unit[bucket->unit[i]];
        u->waits = false;
        if (!e) e = put_sum(dp, u, u->due == 0, err);
        scattering_leave(u);
    }
    bucket_empty(bucket);
    free(row);
    return e;
}

/* let_wait puts a unit into the bucket, and reduces the bucket before or after if there is no room. */
static enum error_code let_wait(struct data_parallel *dp, struct bucket *bucket, int unit, struct error *err)
{
    struct unit *u = &dp->unit[unit];
    const int64_t capacity = bucket_capacity(dp, u->over, KIND_GRADIENT);
    /* A unit that does not fit sends the bucket first. */
    const enum error_code e = bucket_takes(bucket, u, capacity) ? OK : reduce_waiting(dp, bucket, err);
    bucket_add(bucket, u, unit);
    u->waits = true;
    return e || !bucket_is_full(bucket, capacity) ? e : reduce_waiting(dp, bucket, err);
}

/* ---- calls of the seam ------------------------------------------------------------------------------------------- */

/* If the unit's gradient of an earlier pass still waits, reduce it first: gradients of different passes are never
 * mixed. */
static enum error_code make_way(struct data_parallel *dp, struct bucket *bucket, const struct unit *unit,
                                struct error *err)
{
    if (!unit->waits) return OK;
    data_begin_sending(dp, SENDS_GRADIENTS);
    const enum error_code e = reduce_waiting(dp, bucket, err);
    clock_end(&dp->device->clock);
    return e;
}

/* Allocate the gradient: zeros, or the current values if the whole gradient is on the slow tier. */
static enum error_code scattering_make_room(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    /* Whole gradients are kept: passes add to the kept tensor itself. */
    if (unit->over->shards.gradients == 1) {
        const enum error_code e = take_sum(dp, unit, err);
        unit->g.data = unit->sum.data;
        return e;
    }
    unit->g.data = arena_alloc(&dp->device->arena, GRADIENTS, tensor_bytes(unit->g));
    if (unit->g.data == NULL)
        return fail(err, ERR_MEMORY, "no memory for the gradient of %s and what belongs to it",
                    unit->parameter[0].spec.name);
    device_zero(dp->device, unit->g);
    return OK;
}

/* scattering_begin gives a unit memory for its gradient.  An existing gradient stays, and passes add more. */
static enum error_code scattering_begin(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    struct scattering *s = chain_state(dp, &stage_scattering);
    enum error_code e = make_way(dp, &s->waiting, unit, err);
    if (e || unit->g.data != NULL) return e;
    e = scattering_make_room(dp, unit, err);
    show_gradients(unit);
    return e;
}

/* After a pass has added to a unit: keep the gradient until other passes have also added, or put it into the bucket. */
static enum error_code end_unit(struct data_parallel *dp, struct bucket *bucket, int unit, struct error *err)
{
    struct unit *u = &dp->unit[unit];
    const bool shards = u->over->shards.gradients > 1;
    /* Sharded gradients leave when no pass adds next; whole ones when all passes of the step have. */
    if (shards ? !gradient_stays_after(dp, dp->at, unit) : u->due == 0) return let_wait(dp, bucket, unit, err);
    if (shards) return OK;
    const enum error_code e = put_sum(dp, u, false, err);
    scattering_leave(u);
    return e;
}

/* Reduce on another stream, beside the following backward passes. */
static enum error_code scattering_end(struct data_parallel *dp, struct use use, struct error *err)
{
    struct scattering *s = chain_state(dp, &stage_scattering);
    int unit[PART_UNITS];
    enum error_code e = OK;
    data_begin_sending(dp, SENDS_GRADIENTS);
    for (int i = 0, n = gradients_at(dp, use, unit); i < n && !e; i++) e = end_unit(dp, &s->waiting, unit[i], err);
    clock_end(&dp->device->clock);
    return e;
}

/* Gradients to which no pass has added are zero; they are reduced with the rest of their bucket. */
static enum error_code scattering_finish(struct data_parallel *dp, struct error *err)
{
    struct scattering *s = chain_state(dp, &stage_scattering);
    data_begin_sending(dp, SENDS_GRADIENTS);
    const enum error_code e = reduce_waiting(dp, &s->waiting, err);
    clock_end(&dp->device->clock);
    return e;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static enum error_code open_bucket(struct data_parallel *dp, struct error *err)
{
    struct scattering *s = chain_state(dp, &stage_scattering);
    for (int i = 0; i < dp->units; i++) dp->unit[i].passing_g = data_scatters(dp) && !dp->unit[i].frozen;
    return bucket_open(&s->waiting, dp->units, err);
}

static void close_bucket(struct data_parallel *dp)
{
    bucket_close(&((struct scattering *)chain_state(dp, &stage_scattering))->waiting);
}

/* If gradients are one block, units' gradients are views of it. */
static int64_t own_elements(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    (void)kind;
    return data_scatters(dp) ? kept_elements(unit, BY_GRADIENTS) : -1;
}

/* On the slow tier there is no sum until take_sum copies one to the device. */
static void scattering_make(struct data_parallel *dp, struct unit *unit)
{
    unit->sum = on_tier(dp, unit->own_g) ? tensor_none : unit->own_g;
}

/* A passing gradient is still there only if a step has failed. */
static void unmake(struct data_parallel *dp, struct unit *unit)
{
    if (unit->passing_g && unit->g.data != unit->sum.data) device_free(dp->device, unit->g);
}

/* On the tier a gradient needs no zeros: `added` says whether its values count. */
static void scattering_clear(struct data_parallel *dp, struct unit *unit)
{
    if (!on_tier(dp, unit->own_g)) device_zero(dp->device, unit->own_g);
    if (tracked(unit->tracking)) tracking_clear(unit->tracking, tensor_count(unit->own_g));
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

/* Gradients in one block are reduced by allreduce.c or low_rank.c. */
static bool scattering_takes_part(const struct data_parallel *dp)
{
    return has_gradients(dp) && !gradients_in_one_block(dp);
}

const struct data_stage stage_scattering = {
    .name = "scattering", .takes_part = scattering_takes_part, .state = sizeof (struct scattering),
        .outline = open_bucket,
    .close = close_bucket, .make = scattering_make,
    .unmake = unmake, .begin = scattering_begin, .end = scattering_end, .finish = scattering_finish,
        .clear = scattering_clear,
    .keeps = { { offsetof(struct unit, own_g), GRADIENTS, KIND_GRADIENT, own_elements } }, .kept = 1,
    .foresee = scattering_foresee, .cost = scattering_cost,
    .passing = scattering_passing, .moves = scattering_moves,
};
