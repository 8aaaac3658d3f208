/* gradients.c -- gradients reduced over dp, as soon as backward has finished them. */
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/schemes/data/tiles.h"
#include <string.h>

/* ---- where they are ------------------------------------------------------------------------------------------------------------ */

struct range stepped_gradients(const struct data_parallel *dp, const struct unit *u)
{
    struct range own = shards_range(&dp->shards, BY_OPTIMIZER, u->padded);
    own.first -= shards_range(&dp->shards, BY_GRADIENTS, u->padded).first;
    return own;
}

struct tensor data_own_gradient(const struct data_parallel *dp, const struct unit *u) { return slice(u->own_g, stepped_gradients(dp, u)); }
struct tracking data_own_tracking(const struct data_parallel *dp, const struct unit *u) { return tracking_from(u->tracking, stepped_gradients(dp, u).first); }

/* ---- reducing ------------------------------------------------------------------------------------------------------------------ */

/* Gradients that are kept in shards, and that one pass has added to: to the devices that keep them, and out of here. */
static enum error_code scatter(struct data_parallel *dp, struct unit *u, struct error *err)
{
    struct device *d = dp->device;
    struct tensor row = u->g;
    if (u->rows > 0) {
        row = device_tensor_in(d, BUFFERS, u->g.dtype, u->padded);
        if (row.data == NULL) return fail(err, ERR_MEMORY, "no memory to reduce the gradient of %s", u->parameter[0].spec.name);
        unit_from_whole(u, (struct range){ 0, u->padded }, row.data, u->g.data, row.dtype);
    }
    struct tracking t = { 0 };
    enum error_code e = dp->tracks ? tracking_open(&t, u->padded, err) : OK;
    if (!e && tracked(t)) tracking_start(t, row);
    const struct range half = shards_range(&dp->shards, BY_WEIGHTS, u->padded), kept = shards_range(&dp->shards, BY_GRADIENTS, u->padded);
    if (!e) e = level_reduce_scatter(dp, BY_WEIGHTS, row, t, err);
    if (!e) e = level_reduce_scatter(dp, BY_GRADIENTS, slice(row, half), tracking_from(t, half.first), err);
    if (!e) e = offload_take_sum(dp, u, err);
    if (!e) dev_add(d, u->sum, u->sum, slice(row, kept));
    if (!e && tracked(t)) tracking_add(u->tracking, tracking_from(t, kept.first), u->sum);
    tracking_close(&t);
    if (u->rows > 0) device_free(d, row);
    device_free(d, u->g);
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
static enum error_code reduce_last(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (dp->tracks && dp->shards.gradients == 1) tracking_start(u->tracking, u->sum);
    enum error_code e = level_reduce_scatter(dp, BY_OPTIMIZER, u->sum, u->tracking, err);
    const struct tensor own = slice(u->sum, stepped_gradients(dp, u));
    if (!e && !dp->shards.apart) e = allreduce(&dp->level[BY_COPIES], own.data, tensor_count(own), own.dtype, SUM, dp->allreduce, err);
    return e || !dp->tracks ? e : track_copies(dp, u, err);
}

/* ---- ddp: everything whole, in buckets ---------------------------------------------------------------------------------------- */

static bool everything_is_whole(const struct data_parallel *dp) { return dp->shards.optimizer == 1 && !data_scatters(dp); }

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
        const struct range bucket = range_meet((struct range){ dp->reduced, step }, (struct range){ 0, n });
        if (bucket.first + bucket.count > ready) break;
        e = allreduce(dp->group, slice(g, bucket).data, bucket.count, g.dtype, SUM, dp->allreduce, err);
        dp->reduced += bucket.count;
    }
    return e;
}

/* ---- the seam ------------------------------------------------------------------------------------------------------------------ */

/* Room, with zeros; or with what is there already, where the whole lies on the slow tier. */
static enum error_code begin(struct data_parallel *dp, struct unit *u, struct error *err)
{
    enum error_code e = OK;
    if (dp->shards.gradients == 1) {
        e = offload_take_sum(dp, u, err);
        u->g.data = u->sum.data;
    } else {
        u->g.data = arena_alloc(&dp->device->arena, GRADIENTS, tensor_bytes(u->g));
        if (u->g.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradient of %s and what belongs to it", u->parameter[0].spec.name);
        memset(u->g.data, 0, tensor_bytes(u->g));
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

static void end(struct unit *u)
{
    u->g.data = NULL;
    show_gradients(u);
}

/* On the communication stream: beside the backward passes that follow. */
static enum error_code end_use(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[2];
    const int n = data_gradients_at(dp, use, unit);
    for (int i = 0; i < n; i++) dp->unit[unit[i]].due--;
    enum error_code e = low_rank_in_step(dp) ? low_rank_pack(dp, err) : OK;
    clock_begin(&dp->device->clock, COMMUNICATION);
    for (int i = 0; i < n && !e; i++) {
        struct unit *u = &dp->unit[unit[i]];
        if (dp->shards.gradients > 1) e = scatter(dp, u, err);
        if (!e && u->due == 0 && !everything_is_whole(dp)) e = reduce_last(dp, u, err);
        if (!e) e = offload_put_sum(dp, u, u->due == 0, err);
        if (data_scatters(dp)) end(u);
    }
    if (!e && everything_is_whole(dp)) e = reduce_buckets(dp, err);
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
    if (!e && everything_is_whole(dp)) e = reduce_buckets(dp, err);
    clock_end(&dp->device->clock);
    clock_join(&dp->device->clock, COMMUNICATION);
    if (low_rank_in_step(dp)) low_rank_unpack(dp);
    if (offloads(&dp->request, GRADIENTS)) clock_join(&dp->device->clock, FLUSH), clock_join(&dp->device->clock, DRIVE);
    expect_uses(dp);
    return e;
}
