/* chosen.c -- experts on the slow tier that are read when a router has chosen them, for inference.
 *
 * Source   experts on a slow tier, of which those in use are on the device: D. Yu et al., "MoESys: a distributed and
 *          efficient mixture-of-experts training and inference system", arXiv:2205.10034
 * Memory   on the device room for one layer's experts, those of the largest layer
 * Moves    in each layer and microbatch a read for each expert of this device that has rows, of its two matrices
 * Time     nothing is read ahead: a layer waits for all its reads.  With a drive the host's cache keeps what is chosen
 *          most
 * Equals   the same with all experts on the device, bit for bit: numbers are only stored elsewhere
 * Called   data_read_experts, for model/run/run_mixture.c, reads the experts; data.c calls the stage for all parts.
 *          Errors: ERR_MEMORY, and those of reading the slow tier.
 */
#include "emulated_devices/schemes/data/stages/stage.h"

struct chosen { struct tensor room; int64_t elements; };

static struct chosen *chosen_own_state(const struct data_parallel *dp) { return chain_state(dp, &stage_chosen); }

bool unit_is_chosen(const struct data_parallel *dp, const struct unit *unit)
{
    return dp->request.chosen && unit->experts && unit_offloads(dp, unit, PARAMETERS);
}

static enum error_code outline(struct data_parallel *dp, struct error *err)
{
    struct chosen *c = chosen_own_state(dp);
    (void)err;
    for (int i = 0; i < dp->units; i++)
        /* The room has one layer's experts at a time, so the largest layer decides its size. */
        if (unit_is_chosen(dp, &dp->unit[i]) && whole_elements(&dp->unit[i]) > c->elements)
            c->elements = whole_elements(&dp->unit[i]);
    return OK;
}

static enum error_code chosen_fill(struct data_parallel *dp, struct error *err)
{
    struct chosen *c = chosen_own_state(dp);
    if (c->elements == 0) return OK;                    /* this device has no experts */
    c->room = device_tensor_1d(dp->device, PARAMETERS, c->elements);
    return c->room.data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for the experts of a layer");
}

static void chosen_make(struct data_parallel *dp, struct unit *unit)
{
    if (unit_is_chosen(dp, unit)) unit->w = tensor_1d(NULL, dp->device->dtype, whole_elements(unit));
}

static void close_room(struct data_parallel *dp) { device_free(dp->device, chosen_own_state(dp)->room); }

/* The room is the layer's for this pass; it has what was read last. */
static void give_room(struct unit *unit, void *room)
{
    unit->w.data = room;
    show_weights(unit);
}

/* Acquiring reads nothing: the router has not chosen yet.  data_read_experts reads afterwards. */
static enum error_code chosen_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    int unit[PART_UNITS];
    (void)ahead, (void)err;
    for (int i = 0, n = units_at(dp, use, unit); i < n; i++)
        if (unit_is_chosen(dp, &dp->unit[unit[i]])) give_room(&dp->unit[unit[i]], chosen_own_state(dp)->room.data);
    return OK;
}

/* The layer's views become NULL, and the room is free for the next layer. */
static void chosen_release(struct data_parallel *dp, int use, int unit)
{
    (void)use;
    if (unit_is_chosen(dp, &dp->unit[unit])) give_room(&dp->unit[unit], NULL);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The parameters of an expert are neighbours. */
static int expert_parameters(const struct unit *unit, int first)
{
    int n = 0;
    while (first + n < unit->count && unit->parameter[first + n].spec.expert == unit->parameter[first].spec.expert) n++;
    return n;
}

/* read_expert copies an expert's matrices from the tier into the room.  `when` becomes the time of the latest copy. */
static enum error_code read_expert(struct data_parallel *dp, struct unit *unit, const struct parameter *all, int count,
                                   picoseconds *when, struct error *err)
{
    struct tier *tier = chain_state(dp, &stage_tier);
    struct interval own = { all[0].place, 0 };
    for (int i = 0; i < count; i++) own.count += layout_count(&all[i].layout);
    const struct tensor home = slice(unit->own_w, own);
    picoseconds until = tier_announce(tier, home, dp->device->clock.now);
    const enum error_code e = tier_read(tier, slice(unit->w, own), home, &until, err);
    if (until > *when) *when = until;
    return e;
}

enum error_code data_read_experts(struct data_parallel *dp, int part, const int32_t *counts, struct error *err)
{
    int unit[PART_UNITS];
    picoseconds when = dp->device->clock.now;
    enum error_code e = OK;
    for (int k = 0, n = units_at(dp, (struct use){ .part = part }, unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        for (int i = 0, n; i < u->count && unit_is_chosen(dp, u) && !e; i += n) {
            n = expert_parameters(u, i);
            /* An expert without rows is not read: nothing computes with what its place has. */
            if (counts[u->parameter[i].spec.expert] > 0) e = read_expert(dp, u, &u->parameter[i], n, &when, err);
        }
    }
    clock_wait(&dp->device->clock, when);
    return e;
}

static void chosen_passing(const struct data_parallel *dp, struct model_state *sum)
{
    sum->weights += (uint64_t)chosen_own_state(dp)->elements * dtype_size(data_format(dp, KIND_WEIGHT));
}

static bool chosen_takes_part(const struct data_parallel *dp) { return dp->request.chosen; }

const struct data_stage stage_chosen = {
    .name = "chosen experts", .takes_part = chosen_takes_part, .state = sizeof (struct chosen), .outline = outline,
    .fill = chosen_fill, .make = chosen_make, .close = close_room, .acquire = chosen_acquire, .release = chosen_release,
        .passing = chosen_passing,
};
