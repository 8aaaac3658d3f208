/* offload.c -- weights, gradients and optimizer state on a slow tier, and copies of them on the device.
 *
 * Source   S. Rajbhandari et al., "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning",
 *          arXiv:2104.07857; J. Ren et al., "ZeRO-Offload: democratizing billion-scale model training",
 *          arXiv:2101.06840
 * Memory   on the device, for a class that is offloaded:
 *          weights      two whole parts of the model, as with shards, and the shards of the part that is gathered and
 *                       of the next one; with --ring K of the next K - 2
 *          gradients    one whole part, and a unit's shard
 *          optimizer    during the step, OFFLOAD_BUFFERS slices of it, and of the other offloaded classes
 * Moves    weights      one read for each gathering, one write per step; without masters the step also reads them
 *          gradients    for each pass that adds to them one write, and except for the first one read; one read in the
 *                       step
 *          optimizer    one read and one write per step
 *          A device moves only its own shards: with N devices each link carries 1/N
 * Equals   the same scheme without offloading, bit for bit: numbers are only stored elsewhere
 * Called   data.c calls the stage; slices.c, outer.c and step.c borrow copies; model/trainer_cost.c asks for traffic.
 *          Errors: ERR_MEMORY, and those of the slow tier.
 */
#include "emulated_devices/schemes/data/stages/offload.h"

/* ---- the tier ---------------------------------------------------------------------------------------------------- */

static struct tier *own_tier(const struct data_parallel *dp) { return chain_state(dp, &stage_tier); }

/* The tier aligns each tensor, so its room may be more than its bytes. */
static uint64_t room_of(const struct data_parallel *dp, enum tensor_kind kind, int64_t n)
{
    return tier_room((uint64_t)n * dtype_size(data_format(dp, kind)));
}

/* unit_room gives the bytes of the tier that this unit's tensors will take. */
static uint64_t unit_room(const struct data_parallel *dp, const struct unit *unit)
{
    uint64_t sum = unit_offloads(dp, unit, PARAMETERS) ? room_of(dp, KIND_WEIGHT, kept_elements(unit, BY_WEIGHTS)) : 0;
    /* Stages say which tensors they keep; those of an offloaded kind get room on the tier. */
    for EACH_LINK(dp, l)
        for (int i = 0; i < l->stage->kept; i++) {
            const struct keeping *k = &l->stage->keeps[i];
            const int64_t n = unit_offloads(dp, unit, k->tag) ? keeping_elements(dp, unit, k) : -1;
            if (n > 0) sum += room_of(dp, k->kind, n);
        }
    return sum;
}

/* Other stages allocate the units' memory; this one copies offloaded tensors to the device. */
static enum error_code outline(struct data_parallel *dp, struct error *err)
{
    (void)err;
    dp->unit_by_unit = true;
    for (int i = 0; i < dp->units; i++) {
        struct unit *u = &dp->unit[i];
        u->copied_w = unit_offloads(dp, u, PARAMETERS) && !unit_is_chosen(dp, u) ? kept_elements(u, BY_WEIGHTS) : 0;
        u->copied_g = unit_offloads(dp, u, GRADIENTS) ? kept_elements(u, BY_GRADIENTS) : 0;
    }
    return OK;
}

/* offload_fill opens the tier with room for all units, before any unit is allocated. */
static enum error_code offload_fill(struct data_parallel *dp, struct error *err)
{
    uint64_t bytes = room_of(dp, KIND_WEIGHT, landing_elements(dp));
    for (int u = 0; u < dp->units; u++) bytes += unit_room(dp, &dp->unit[u]);
    const enum error_code e = tier_open(own_tier(dp), dp->device, dp->request.offload_to, bytes, err);
    tier_cache(own_tier(dp), dp->request.host_cache);
    return dp->request.offload_to ? fail_about(err, e, "--offload-to") : e;
}

static void close_tier(struct data_parallel *dp)
{
    tier_close(own_tier(dp));
}

/* A block of the host's cache is what a home has of one expert, or of all that is no expert. */
struct cutting { struct tier *tier; struct tensor home; int64_t first; struct interval block; int expert; };

static void end_block(struct cutting *cutting)
{
    tier_cut(cutting->tier, slice(cutting->home, cutting->block));
    cutting->block.count = 0;
}

/* A block ends where the next stretch belongs to another expert. */
static void cut_stretch(void *context, struct portion portion)
{
    struct cutting *c = context;
    const int64_t at = portion.row - c->first;
    if (portion.parameter->spec.expert != c->expert) end_block(c);
    c->expert = portion.parameter->spec.expert;
    if (c->block.count == 0) c->block.first = at;
    c->block.count = at + portion.length - c->block.first;     /* with the padding between */
}

/* offload_place gives a unit's tensor room on the tier, or no room if its class is not offloaded. */
static struct tensor offload_place(struct data_parallel *dp, const struct unit *unit, enum arena_tag tag,
                                   enum dtype format, int64_t n)
{
    static const enum shard_level levels[] = {
        [PARAMETERS] = BY_WEIGHTS, [GRADIENTS] = BY_GRADIENTS, [OPTIMIZER] = BY_OPTIMIZER
    };
    struct cutting c = { .tier = own_tier(dp), .expert = -2 };
    if (!unit_offloads(dp, unit, tag)) return tensor_none;
    c.home = tier_place(c.tier, format, n);
    const struct interval part = shards_range(&unit->over->shards, levels[tag], unit->padded);
    c.first = part.first;
    unit_each_stretch(unit, part, cut_stretch, &c);
    end_block(&c);
    return c.home;
}

bool on_tier(const struct data_parallel *dp, struct tensor t)
{
    const struct tier *tier = own_tier(dp);
    const char *at = t.data;
    return tier && at && tier->memory && at >= tier->memory && at <= tier->memory + tier->size;
}

/* Copies may be left on the device after an error. */
static void unmake(struct data_parallel *dp, struct unit *unit)
{
    if (unit->copied_w > 0) device_free(dp->device, unit->shard);
    if (unit->copied_g > 0) device_free(dp->device, unit->sum);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A unit needs no copy if its weights are not on the tier, or if a copy exists. */
static bool is_here(const struct unit *unit)
{
    return unit->copied_w == 0 || unit->w.data != NULL || unit->shard.data != NULL;
}

/* Start the copy from the drive to the host. */
static void offload_announce(struct data_parallel *dp, struct unit *unit)
{
    if (is_here(unit) || unit->asked) return;
    unit->announced = tier_announce(own_tier(dp), unit->own_w, dp->device->clock.now);
    unit->asked = true;
}

/* offload_fetch starts the copy of a unit's shard to the device; gathering.c waits for `fetched`. */
static enum error_code offload_fetch(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    if (is_here(unit)) return OK;
    offload_announce(dp, unit);
    unit->shard = device_tensor_1d(dp->device, PARAMETERS, unit->copied_w);
    if (unit->shard.data == NULL)
        return fail(err, ERR_MEMORY, "the machine has no memory left to read %s", unit->parameter[0].spec.name);
    /* The copy to the device starts when the host has the data, but not before now. */
    unit->fetched = unit->announced > dp->device->clock.now ? unit->announced : dp->device->clock.now;
    unit->asked = false;
    return tier_read(own_tier(dp), unit->shard, unit->own_w, &unit->fetched, err);
}

static void offload_drop(struct data_parallel *dp, struct unit *unit)
{
    if (unit->copied_w == 0) return;
    device_free(dp->device, unit->shard);
    unit->shard = tensor_none;
}

/* fetch_at requests the shards of a use: from the drive to the host only, or on to the device. */
static enum error_code fetch_at(struct data_parallel *dp, int use, bool announced_only, struct error *err)
{
    int unit[PART_UNITS];
    enum error_code e = OK;
    for (int i = 0, n = units_at(dp, dp->use[use], unit); i < n && !e; i++) {
        if (announced_only) offload_announce(dp, &dp->unit[unit[i]]);
        else e = offload_fetch(dp, &dp->unit[unit[i]], err);
    }
    return e;
}

/* Request the weights that will be gathered at the uses after the next one, and from the drive those after the ring. */
static enum error_code offload_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    enum error_code e = OK;
    int next = ahead ? next_weight_use(dp, dp->at) : -1;
    (void)use;
    for (int k = 2; k <= ring_parts(dp) && next >= 0 && !e; k++) {
        next = next_weight_use(dp, next);
        if (next >= 0) e = fetch_at(dp, next, k == ring_parts(dp), err);
    }
    return e;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* offload_take makes unit->sum [elements of home] on the device: zeros, or with `filled` the values of the tier. */
static enum error_code offload_take(struct data_parallel *dp, struct unit *unit, struct tensor home, bool filled,
                                    struct error *err)
{
    struct clock *clock = &dp->device->clock;
    unit->sum = device_tensor_in(dp->device, GRADIENTS, home.dtype, tensor_count(home));
    if (unit->sum.data == NULL)
        return fail(err, ERR_MEMORY, "the machine has no memory left for the gradient of %s",
                    unit->parameter[0].spec.name);
    device_zero(dp->device, unit->sum);
    if (!filled) return OK;
    /* The last write of this gradient must have ended before it is read again. */
    picoseconds when =
        tier_announce(own_tier(dp), home, unit->flushed > clock->now ? unit->flushed : clock->now);
    const enum error_code e = tier_read(own_tier(dp), unit->sum, home, &when, err);
    clock_wait(clock, when);
    return e;
}

/* offload_put starts the write of `from` to the tier and frees the sum.  `flushed` is the time of its end. */
static enum error_code offload_put(struct data_parallel *dp, struct unit *unit, struct tensor home, struct tensor from,
                                   struct error *err)
{
    unit->flushed = dp->device->clock.now;
    const enum error_code e = tier_write(own_tier(dp), home, from, &unit->flushed, err);
    device_free(dp->device, unit->sum);
    unit->sum = tensor_none;
    return e;
}

/* The unit's part of the norm begins anew: each finished gradient replaces the last. */
static void count_squares(struct data_parallel *dp, struct unit *unit, struct tensor g)
{
    unit->squares = (struct exact_sum){ .infinite = 0 };
    unit_add_squares(dp, unit, g, &unit->squares);
}

/* Copy own_g to the device, with its values of this step. */
static enum error_code take_own(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    return on_tier(dp, unit->own_g) ? offload_take(dp, unit, unit->own_g, unit->added, err) : OK;
}

/* put_own writes the sum back.  A finished gradient is written only in the part that this device steps. */
static enum error_code put_own(struct data_parallel *dp, struct unit *unit, bool finished, struct error *err)
{
    const struct interval part = finished ? stepped_gradients(unit) : (struct interval){ 0, tensor_count(unit->own_g) };
    if (!on_tier(dp, unit->own_g)) return OK;
    /* Squares are summed while the gradient is here, so that the norm needs no second read. */
    if (finished) count_squares(dp, unit, slice(unit->sum, part));
    unit->added = true;
    return offload_put(dp, unit, slice(unit->own_g, part), slice(unit->sum, part), err);
}

enum error_code data_take_gradient(struct data_parallel *dp, struct unit *unit, struct tensor *tensor,
                                   struct error *err)
{
    *tensor = data_own_gradient(unit);
    if (!on_tier(dp, unit->own_g)) return OK;
    /* zeros before the first pass of this update */
    const enum error_code e = offload_take(dp, unit, *tensor, unit->added, err);
    *tensor = unit->sum;
    return e;
}

enum error_code data_put_gradient(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    if (!on_tier(dp, unit->own_g)) return OK;
    count_squares(dp, unit, unit->sum);
    const enum error_code e = offload_put(dp, unit, data_own_gradient(unit), unit->sum, err);
    clock_wait(&dp->device->clock, unit->flushed);
    return e;
}

enum error_code borrow(struct data_parallel *dp, enum arena_tag tag, struct tensor home, bool read, struct tensor *here,
                       struct error *err)
{
    struct clock *clock = &dp->device->clock;
    *here = home;
    if (!on_tier(dp, home)) return OK;
    *here = device_tensor_in(dp->device, tag, home.dtype, tensor_count(home));
    if (here->data == NULL)
        return fail(err, ERR_MEMORY, "the machine has no memory left for a copy of what is on the slow tier");
    if (!read) return OK;
    picoseconds when = tier_announce(own_tier(dp), home, clock->now);
    const enum error_code e = tier_read(own_tier(dp), *here, home, &when, err);
    clock_wait(clock, when);
    return e;
}

enum error_code give(struct data_parallel *dp, struct tensor home, struct tensor here, bool written, struct error *err)
{
    picoseconds when = dp->device->clock.now;
    if (here.data == home.data) return OK;
    const enum error_code e = written ? tier_write(own_tier(dp), home, here, &when, err) : OK;
    clock_wait(&dp->device->clock, when);
    device_free(dp->device, here);
    return e;
}

/* The engines of the tier are all streams from FETCH on. */
void join_tier(struct data_parallel *dp)
{
    for (enum stream s = FETCH; s <= HOST; s++) clock_join(&dp->device->clock, s);
}

static void offload_settle(struct data_parallel *dp)
{
    join_tier(dp);
}

static void offload_clear(struct data_parallel *dp, struct unit *unit)
{
    (void)dp;
    unit->added = false;
    unit->squares = (struct exact_sum){ .infinite = 0 };
}

/* ---- what is on the tier ----------------------------------------------------------------------------------------- */

struct tier_traffic data_tier_traffic_so_far(const struct data_parallel *dp)
{
    const struct tier *tier = own_tier(dp);
    return tier ? tier->traffic : (struct tier_traffic){ 0 };
}

struct drive_use data_drive_use(const struct data_parallel *dp)
{
    const struct tier *t = own_tier(dp);
    if (t == NULL) return (struct drive_use){ 0 };
    return (struct drive_use){ t->drive, t->cache.requests, t->cache.hits };
}

struct model_state data_offloaded(const struct data_parallel *dp)
{
    struct model_state sum = { 0 };
    for (int i = 0; i < dp->units; i++) {
        const struct unit *u = &dp->unit[i];
        const struct model_state kept = unit_kept_bytes(dp, u);
        if (unit_offloads(dp, u, PARAMETERS)) sum.weights += kept.weights;
        if (unit_offloads(dp, u, GRADIENTS)) sum.gradients += kept.gradients;
        if (unit_offloads(dp, u, OPTIMIZER)) sum.optimizer += kept.optimizer;
    }
    return sum;
}

static bool offload_takes_part(const struct data_parallel *dp) { return dp->request.offload != 0; }

const struct data_stage stage_tier = {
    .name = "slow tier", .takes_part = offload_takes_part, .state = sizeof (struct tier), .outline = outline,
        .fill = offload_fill,
    .close = close_tier,
    .place = offload_place, .unmake = unmake, .fetch = offload_fetch, .drop = offload_drop, .acquire = offload_acquire,
        .take_sum = take_own,
    .put_sum = put_own, .settle = offload_settle,
    .clear = offload_clear,
};
