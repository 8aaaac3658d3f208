/* gradients.c -- gradients reduced over dp, as soon as backward has finished them. */
#include "emulated_devices/schemes/data/bucket.h"
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/schemes/data/tiles.h"
#include <stdlib.h>

/* ---- where they are ------------------------------------------------------------------------------------------------------------ */

struct interval stepped_gradients(const struct data_parallel *dp, const struct unit *u)
{
    struct interval own = shards_range(&dp->shards, BY_OPTIMIZER, u->padded);
    own.first -= shards_range(&dp->shards, BY_GRADIENTS, u->padded).first;
    return own;
}

struct tensor data_own_gradient(const struct data_parallel *dp, const struct unit *u) { return slice(u->own_g, stepped_gradients(dp, u)); }
struct tracking data_own_tracking(const struct data_parallel *dp, const struct unit *u) { return tracking_from(u->tracking, stepped_gradients(dp, u).first); }

/* ---- reducing ------------------------------------------------------------------------------------------------------------------ */

/* A unit's whole gradient as the row that is cut: itself, or where it is cut by rows a copy. */
static enum error_code open_row(struct data_parallel *dp, const struct unit *u, struct tensor *row, struct error *err)
{
    *row = u->g;
    if (u->rows == 0) return OK;
    *row = device_tensor_in(dp->device, BUFFERS, u->g.dtype, u->padded);
    if (row->data == NULL) return fail(err, ERR_MEMORY, "no memory to reduce the gradient of %s", u->parameter[0].spec.name);
    unit_from_whole(dp->device, u, (struct interval){ 0, u->padded }, row->data, u->g.data, row->dtype);
    return OK;
}

/* What has come of a unit's gradient, to what is kept of it; the whole goes. */
static enum error_code add_to_kept(struct data_parallel *dp, struct unit *u, struct tensor row, struct tracking t, struct error *err)
{
    const struct interval kept = shards_range(&dp->shards, BY_GRADIENTS, u->padded);
    const enum error_code e = offload_take_sum(dp, u, err);
    if (!e) dev_add(dp->device, u->sum, u->sum, slice(row, kept));
    clock_made(&dp->device->clock, u->sum.data, tensor_bytes(u->sum));
    if (!e && tracked(t)) tracking_add(dp->device, u->tracking, tracking_from(t, kept.first), u->sum);
    if (u->rows > 0) device_free(dp->device, row);
    device_free(dp->device, u->g);
    return e;
}

/* Gradients that are kept in shards, and that passes have added to: to the devices that keep them.  What is tracked goes alone. */
static enum error_code scatter(struct data_parallel *dp, const struct bucket *b, struct tensor row[], struct tensor half[], struct error *err)
{
    struct tracking t = { 0 };
    enum error_code e = OK;
    struct interval cut = { 0 };
    for (int i = 0; i < b->units && !e; i++) {
        const struct unit *u = &dp->unit[b->unit[i]];
        cut = shards_range(&dp->shards, BY_WEIGHTS, u->padded);
        e = open_row(dp, u, &row[i], err);
        half[i] = slice(row[i], cut);
    }
    if (!e && dp->tracks) e = tracking_open(&t, tensor_count(row[0]), err);
    if (!e && tracked(t)) tracking_start(dp->device, t, row[0]);
    if (!e) e = bucket_reduce_scatter(dp, BY_WEIGHTS, row, b->units, t, err);
    if (!e) e = bucket_reduce_scatter(dp, BY_GRADIENTS, half, b->units, tracking_from(t, cut.first), err);
    for (int i = 0; i < b->units && !e; i++) e = add_to_kept(dp, &dp->unit[b->unit[i]], row[i], t, err);
    tracking_close(&t);
    return e;
}

/* The all-reduce among copies quantises nothing, but adds up what is off. */
static enum error_code track_copies(struct data_parallel *dp, struct unit *u, struct error *err)
{
    struct group *g = &dp->level[BY_COPIES];
    if (g->size == 1) return OK;
    struct exchange control = exchange_begin(g, CONTROL);
    return tracking_sum(&control, g->size, NULL, data_own_tracking(dp, u), data_own_gradient(dp, u), err);
}

/* After the last microbatch: to the device that steps them, and the sum over copies, unless they train apart. */
static enum error_code reduce_last(struct data_parallel *dp, const struct bucket *b, struct tensor row[], struct tensor own[], struct error *err)
{
    struct unit *last = NULL;
    int n = 0;
    for (int i = 0; i < b->units; i++) {
        struct unit *u = &dp->unit[b->unit[i]];
        if (u->due > 0) continue;
        row[n] = u->sum;
        own[n++] = slice(u->sum, stepped_gradients(dp, u));
        last = u;
    }
    if (n == 0) return OK;
    if (dp->tracks && dp->shards.gradients == 1) tracking_start(dp->device, last->tracking, last->sum);
    enum error_code e = bucket_reduce_scatter(dp, BY_OPTIMIZER, row, n, last->tracking, err);
    if (!e && !dp->shards.apart) e = bucket_allreduce(dp, BY_COPIES, own, n, err);
    return e || !dp->tracks ? e : track_copies(dp, last, err);
}

static void end(struct unit *u)
{
    u->g.data = NULL;
    show_gradients(u);
}

/* All that wait, in one exchange for each level that they are cut by. */
static enum error_code reduce_waiting(struct data_parallel *dp, struct error *err)
{
    struct bucket *b = &dp->reducing;
    enum error_code e = OK;
    if (b->units == 0) return OK;
    struct tensor *row = calloc((size_t)b->units * 2, sizeof *row), *part = row + b->units;
    if (row == NULL) return fail(err, ERR_MEMORY, "no memory for a bucket of %d units", b->units);
    if (dp->shards.gradients > 1) e = scatter(dp, b, row, part, err);
    if (!e) e = reduce_last(dp, b, row, part, err);
    for (int i = 0; i < b->units; i++) {
        struct unit *u = &dp->unit[b->unit[i]];
        u->waits = false;
        if (!e) e = offload_put_sum(dp, u, u->due == 0, err);
        if (data_scatters(dp)) end(u);
    }
    b->units = 0, b->elements = 0;
    free(row);
    return e;
}

static enum error_code let_wait(struct data_parallel *dp, int unit, struct error *err)
{
    struct bucket *b = &dp->reducing;
    const int64_t capacity = bucket_capacity(dp, KIND_GRADIENT), n = dp->unit[unit].padded;
    const enum error_code e = bucket_takes(b, capacity, n) ? OK : reduce_waiting(dp, err);
    bucket_add(b, unit, n);
    dp->unit[unit].waits = true;
    return e || !bucket_is_full(b, capacity) ? e : reduce_waiting(dp, err);
}

/* ---- ddp: everything whole, in buckets that are cut anywhere ---------------------------------------------------------------------------------------- */

/* Elements at the front of the block of gradients to which every pass has been added: last unit first. */
static int64_t finished(const struct data_parallel *dp)
{
    int64_t n = 0;
    for (int u = dp->units - 1; u >= 0 && dp->unit[u].due == 0; u--) n += dp->unit[u].padded;
    return n;
}

/* Every bucket that is full, or the last one. */
static enum error_code reduce_buckets(struct data_parallel *dp, struct error *err)
{
    const struct tensor g = dp->gradients;
    const bool projected = low_rank_in_step(dp);
    const int64_t n = projected ? low_rank_packed_elements(dp) : tensor_count(g), step = bucket_elements(dp);
    const int64_t ready = projected ? dp->packed : finished(dp);
    enum error_code e = OK;
    while (dp->reduced < n && !dp->shards.apart && !e) {
        const struct interval bucket = interval_meet((struct interval){ dp->reduced, step }, (struct interval){ 0, n });
        if (bucket.first + bucket.count > ready) break;
        e = allreduce(dp->group, slice(g, bucket).data, bucket.count, g.dtype, SUM, dp->allreduce, err);
        dp->reduced += bucket.count;
    }
    return e;
}

/* ---- the seam ------------------------------------------------------------------------------------------------------------------ */

/* What waits of the unit goes first: a pass's gradient is reduced by itself, whatever the bucket's size. */
static enum error_code make_way(struct data_parallel *dp, const struct unit *u, struct error *err)
{
    if (!u->waits) return OK;
    clock_begin(&dp->device->clock, COMMUNICATION);
    const enum error_code e = reduce_waiting(dp, err);
    clock_end(&dp->device->clock);
    return e;
}

/* Room, with zeros; or with what is there already, where the whole lies on the slow tier or has stayed. */
static enum error_code begin(struct data_parallel *dp, struct unit *u, struct error *err)
{
    enum error_code e = make_way(dp, u, err);
    if (e || u->g.data != NULL) return e;
    if (dp->shards.gradients == 1) {
        e = offload_take_sum(dp, u, err);
        u->g.data = u->sum.data;
    } else {
        u->g.data = arena_alloc(&dp->device->arena, GRADIENTS, tensor_bytes(u->g));
        if (u->g.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of %s and what belongs to it", u->parameter[0].spec.name);
        device_zero(dp->device, u->g);
    }
    show_gradients(u);
    return e;
}

static enum error_code begin_use(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[2];
    enum error_code e = OK;
    for (int i = 0, n = data_gradients_at(dp, use, unit); i < n && data_scatters(dp) && !e; i++) e = begin(dp, &dp->unit[unit[i]], err);
    return e;
}

/* What one pass has added to a unit: it is kept as it is, until others have added too, or waits to be reduced. */
static enum error_code end_unit(struct data_parallel *dp, int unit, struct error *err)
{
    struct unit *u = &dp->unit[unit];
    if (dp->shards.gradients > 1) return gradient_stays_after(dp, dp->at, unit) ? OK : let_wait(dp, unit, err);
    if (u->due == 0 && !gradients_in_one_block(dp)) return let_wait(dp, unit, err);
    const enum error_code e = offload_put_sum(dp, u, u->due == 0, err);
    if (data_scatters(dp)) end(u);
    return e;
}

/* On the communication stream: beside the backward passes that follow. */
static enum error_code end_use(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[2];
    const int n = data_gradients_at(dp, use, unit);
    for (int i = 0; i < n; i++) dp->unit[unit[i]].due--;
    enum error_code e = low_rank_in_step(dp) ? low_rank_pack(dp, err) : OK;
    clock_begin(&dp->device->clock, COMMUNICATION);
    for (int i = 0; i < n && !e; i++) e = end_unit(dp, unit[i], err);
    if (!e && gradients_in_one_block(dp)) e = reduce_buckets(dp, err);
    clock_end(&dp->device->clock);
    dp->at++;
    return e;
}

static struct use use_of_part(int part) { return (struct use){ .part = part }; }

static struct use use_of_tile(const struct data_parallel *dp, const struct parameter *p)
{
    return (struct use){ .tile = data_unit_of(dp->config, &dp->request, &p->spec, p->tile) };
}

enum error_code data_begin_gradient(struct data_parallel *dp, int part, struct error *err) { return begin_use(dp, use_of_part(part), err); }
enum error_code data_end_gradient(struct data_parallel *dp, int part, struct error *err) { return end_use(dp, use_of_part(part), err); }

enum error_code data_begin_tile_gradient(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    return begin_use(dp, use_of_tile(dp, tile), err);
}

enum error_code data_end_tile_gradient(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    return end_use(dp, use_of_tile(dp, tile), err);
}

/* What no pass has added to is still zero: in a bucket it is reduced with the rest. */
enum error_code data_finish_gradients(struct data_parallel *dp, struct error *err)
{
    enum error_code e = low_rank_in_step(dp) ? low_rank_pack(dp, err) : OK;
    clock_begin(&dp->device->clock, COMMUNICATION);
    if (!e && gradients_in_one_block(dp)) e = reduce_buckets(dp, err);
    if (!e) e = reduce_waiting(dp, err);
    clock_end(&dp->device->clock);
    clock_join(&dp->device->clock, COMMUNICATION);
    if (low_rank_in_step(dp)) low_rank_unpack(dp);
    if (offloads(&dp->request, GRADIENTS)) clock_join(&dp->device->clock, FLUSH), clock_join(&dp->device->clock, DRIVE);
    expect_uses(dp);
    return e;
}
