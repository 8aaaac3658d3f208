/* gathering.c -- makes weights whole before a part is used, from shards or as copies of the kept ones, and drops them
 * afterwards.
 *
 * data_acquire and data_release reach this stage through the chain (stage.h).  Gathering is collective over the
 * devices that share a unit's weights.  Errors are ERR_MEMORY, ERR_COMM and those of reading the slow tier.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include <stdlib.h>
#include <string.h>

/* most: the most elements of temporary whole weights, including shards copied from the slow tier.  During prediction,
 * here: elements on the device; whole, shard: [units] whether w, and shard, of each unit are on it. */
struct gathering {
    int64_t most, here, during;         /* during: the most in the use that is foreseen */
    int *times, *reads;                 /* [units] how often a step gathers it, and reads it from the slow tier */
    int *first, *first_reads;           /* [units] likewise what inference does besides, once */
    bool *whole, *shard;
};

static struct gathering *gathering_own_state(const struct data_parallel *dp)
{
    return chain_state(dp, &stage_gathering);
}

/* Whether a unit's weights exist whole only while they are used. */
static bool passes(const struct data_parallel *dp, const struct unit *unit)
{
    return !unit_is_chosen(dp, unit) &&
           (optimizer_draws(dp->optimizer) || unit->adapted || unit->over->shards.weights > 1 ||
            unit_offloads(dp, unit, PARAMETERS));
}

/* Whether the next part's weights are gathered while this one computes. */
static bool looks_ahead(const struct data_parallel *dp) { return weights_travel(dp) && !dp->request.no_prefetch; }

/* open_lists decides which units pass, and allocates the lists of the prediction. */
static enum error_code open_lists(struct data_parallel *dp, struct error *err)
{
    struct gathering *g = gathering_own_state(dp);
    for (int i = 0; i < dp->units; i++) dp->unit[i].passing_w = passes(dp, &dp->unit[i]);
    g->times = calloc((size_t)dp->units, sizeof *g->times);
    g->reads = calloc((size_t)dp->units, sizeof *g->reads);
    g->first = calloc((size_t)dp->units, sizeof *g->first);
    g->first_reads = calloc((size_t)dp->units, sizeof *g->first_reads);
    g->whole = calloc((size_t)dp->units, sizeof *g->whole);
    g->shard = calloc((size_t)dp->units, sizeof *g->shard);
    const bool ok = g->times && g->reads && g->first && g->first_reads && g->whole && g->shard;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d units", dp->units);
}

static void close_lists(struct data_parallel *dp)
{
    struct gathering *g = gathering_own_state(dp);
    free(g->times), free(g->reads), free(g->first), free(g->first_reads), free(g->whole), free(g->shard);
}

/* A passing unit has a size for w, and memory only between acquire and release. */
static void gathering_make(struct data_parallel *dp, struct unit *unit)
{
    if (unit->passing_w) unit->w = tensor_1d(NULL, dp->device->dtype, whole_elements(unit));
}

static void unmake(struct data_parallel *dp, struct unit *unit)
{
    if (unit->passing_w) device_free(dp->device, unit->w);
}

/* ---- which weights stay ------------------------------------------------------------------------------------------ */

static bool use_needs(const struct data_parallel *dp, int use, int unit)
{
    int needed[PART_UNITS];
    const int n = units_at(dp, dp->use[use], needed);
    bool found = false;
    for (int k = 0; k < n; k++) found = found || needed[k] == unit;
    return found;
}

/* Whether any pass from here to the next update needs a unit's weights. */
static bool is_needed_again(const struct data_parallel *dp, int use, int unit)
{
    for (; use >= 0; use = next_weight_use(dp, use))
        if (use_needs(dp, use, unit)) return true;
    return false;
}

/* Whether gathered weights stay after a pass: the next one also needs them, or they are kept until backward, or for
 * the whole step. */
static bool stays_after(const struct data_parallel *dp, int use, int unit)
{
    const int next = next_weight_use(dp, use);
    if (next < 0) return false;
    /* The next pass needs the same unit, so dropping and gathering again would only send more. */
    if (use_needs(dp, next, unit)) return true;
    if (dp->shards.once) return is_needed_again(dp, next, unit);
    if (!dp->request.keep || dp->use[use].pass != PASS_FORWARD) return false;
    /* Weights are kept from forward until the backward pass that needs them again. */
    for (int i = next; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++)
        if (dp->use[i].pass == PASS_BACKWARD_INPUT && use_needs(dp, i, unit)) return true;
    return false;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static enum error_code no_room(const struct unit *unit, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left to gather %s and what belongs to it",
                unit->parameter[0].spec.name);
}

/* Gather all devices' shards into a row; if cut by rows, then copy each parameter to its place. */
static enum error_code gather_row(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    struct tensor row = unit->rows > 0 ? device_tensor_1d(dp->device, BUFFERS, unit->padded) : unit->w;
    if (row.data == NULL) return no_room(unit, err);
    const enum error_code e = unit->over->weights->allgather(unit->over, BY_WEIGHTS, unit->shard, row, err);
    if (unit->rows > 0) {
        if (!e) unit_to_whole(dp->device, unit, (struct interval){ 0, unit->padded }, row.data,
                              unit->w.data, row.dtype);
        device_free(dp->device, row);
    }
    return e;
}

/* Gather on the communication stream, beside computing.  Users of the weights wait until unit->ready. */
static enum error_code gathering_gather(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    /* A unit that is whole already, such as one gathered ahead, is not gathered again. */
    if (unit->w.data != NULL || unit->count == 0 || !unit->passing_w) return OK;
    enum error_code e = fetch_weights(dp, unit, err);
    if (e) return e;
    unit->w.data = arena_alloc(&dp->device->arena, PARAMETERS, tensor_bytes(unit->w));
    if (unit->w.data == NULL) return no_room(unit, err);
    /* w [padded] = all devices' shards, on a stream of its own; the device computes meanwhile. */
    data_begin_sending(dp, SENDS_WEIGHTS);
    /* A shard from the slow tier must be on the device first. */
    clock_wait(&dp->device->clock, unit->fetched);
    e = gather_row(dp, unit, err);
    clock_made(&dp->device->clock, unit->w.data, tensor_bytes(unit->w));
    /* `ready` is the time on the sending stream when the last byte has arrived. */
    unit->ready = dp->device->clock.now;
    clock_end(&dp->device->clock);
    /* The shard's copy from the slow tier is no longer needed. */
    TELL(dp, drop, unit);
    show_weights(unit);
    return e;
}

static enum error_code gather_for(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[PART_UNITS];
    enum error_code e = OK;
    for (int i = 0, n = units_at(dp, use, unit); i < n && !e; i++) e = gathering_gather(dp, &dp->unit[unit[i]], err);
    return e;
}

/* gathering_acquire gathers this use's units and waits for these.  Then the next use's units are started. */
static enum error_code gathering_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    int unit[PART_UNITS];
    const int n = units_at(dp, use, unit), next = next_weight_use(dp, dp->at);
    enum error_code e = gather_for(dp, use, err);
    /* This part waits for its own weights; those of the next part are then on their way. */
    for (int i = 0; i < n; i++) clock_wait(&dp->device->clock, dp->unit[unit[i]].ready);
    return !e && ahead && next >= 0 && looks_ahead(dp) ? gather_for(dp, dp->use[next], err) : e;
}

/* The whole weights are freed unless the next use needs this unit, too.  The shard stays. */
static void gathering_release(struct data_parallel *dp, int use, int unit)
{
    struct unit *u = &dp->unit[unit];
    if (!u->passing_w || stays_after(dp, use, unit)) return;
    device_free(dp->device, u->w);
    u->w.data = NULL;
    u->moved = false;
    show_weights(u);
}

/* ---- prediction: the same rules without data --------------------------------------------------------------------- */

/* `most` becomes the peak of the elements on the device so far. */
static void gathering_note(struct gathering *gathering)
{
    if (gathering->here > gathering->most) gathering->most = gathering->here;
    if (gathering->here > gathering->during) gathering->during = gathering->here;
}

/* Predict copies of shards from the slow tier. */
static void foresee_shards(struct data_parallel *dp, struct gathering *gathering, struct use use)
{
    int unit[PART_UNITS];
    for (int k = 0, n = units_at(dp, use, unit); k < n; k++) {
        if (gathering->whole[unit[k]] || gathering->shard[unit[k]]) continue;
        gathering->shard[unit[k]] = true;
        gathering->reads[unit[k]]++;
        gathering->here += dp->unit[unit[k]].copied_w;
        gathering_note(gathering);
    }
}

/* foresee_unit counts what gathering_gather would do: a read, a gathering, and memory at its peak. */
static void foresee_unit(struct data_parallel *dp, struct gathering *gathering, int unit)
{
    const struct unit *u = &dp->unit[unit];
    if (gathering->whole[unit] || u->count == 0 || !u->passing_w) return;
    /* The shard's copy exists until the gathering is over, so it counts in the peak. */
    if (!gathering->shard[unit]) gathering->here += u->copied_w, gathering->reads[unit]++;
    gathering->whole[unit] = true, gathering->shard[unit] = false;
    gathering->times[unit]++;
    gathering->here += whole_elements(u);
    gathering_note(gathering);
    gathering->here -= u->copied_w;
}

static void foresee_use(struct data_parallel *dp, struct gathering *gathering, struct use use)
{
    int unit[PART_UNITS];
    for (int k = 0, n = units_at(dp, use, unit); k < n; k++) foresee_unit(dp, gathering, unit[k]);
}

static void foresee_release(struct data_parallel *dp, struct gathering *gathering, int use)
{
    int unit[PART_UNITS];
    for (int k = 0, n = units_at(dp, dp->use[use], unit); k < n; k++) {
        if (!gathering->whole[unit[k]] || stays_after(dp, use, unit[k])) continue;
        gathering->whole[unit[k]] = false;
        gathering->here -= whole_elements(&dp->unit[unit[k]]);
    }
}

/* foresee_step goes through the list of a step in the order in which acquire and release would be called. */
static void foresee_step(struct data_parallel *dp, struct gathering *gathering)
{
    for (int i = 0; i < dp->uses; i++) {
        dp->use[i].weights = (struct passing){ gathering->here, gathering->here };
        if (dp->use[i].pass == PASS_BACKWARD_WEIGHT || renews_weights(dp->use[i].pass)) continue;
        int next = next_weight_use(dp, i);
        gathering->during = gathering->here;
        foresee_use(dp, gathering, dp->use[i]);
        /* The order is that of acquire: this part, then the next, then shards of those after it. */
        if (looks_ahead(dp) && next >= 0) foresee_use(dp, gathering, dp->use[next]);
        for (int k = 2; k < ring_parts(dp) && looks_ahead(dp) && next >= 0; k++) {
            next = next_weight_use(dp, next);
            if (next >= 0) foresee_shards(dp, gathering, dp->use[next]);
        }
        foresee_release(dp, gathering, i);
        dp->use[i].weights = (struct passing){ gathering->during, gathering->here };
    }
}

/* Move the counts of the first step, from which those of the second will be subtracted. */
static void put_aside(int *count, int *first, int units)
{
    memcpy(first, count, (size_t)units * sizeof *count);
    memset(count, 0, (size_t)units * sizeof *count);
}

/* A pass of inference ends with parts of the next one on the device, so the first pass gathers more than the others. */
static void foresee(struct data_parallel *dp)
{
    struct gathering *g = gathering_own_state(dp);
    foresee_step(dp, g);
    if (!dp->request.infers) return;
    put_aside(g->times, g->first, dp->units), put_aside(g->reads, g->first_reads, dp->units);
    foresee_step(dp, g);
    for (int i = 0; i < dp->units; i++) g->first[i] -= g->times[i], g->first_reads[i] -= g->reads[i];
}

/* The traffic of gathering each unit so often. */
static void add_cost(const struct data_parallel *dp, const int times[], struct account *sum)
{
    for (int i = 0; i < dp->units; i++) {
        const struct unit *u = &dp->unit[i];
        account_add(sum, u->over->weights->allgather_cost(u->over, BY_WEIGHTS, u->padded, data_format(dp, KIND_WEIGHT)),
                    times[i]);
    }
}

/* Weights are gathered on the first level only; renewal.c sends on the others. */
static void gathering_cost(const struct data_parallel *dp, enum shard_level level, struct account *sum)
{
    if (level == BY_WEIGHTS) add_cost(dp, gathering_own_state(dp)->times, sum);
}

static void first_cost(const struct data_parallel *dp, struct account *sum)
{
    add_cost(dp, gathering_own_state(dp)->first, sum);
}

/* Whole weights and copied shards exist beside the kept weights, so their peak is added. */
static void gathering_passing(const struct data_parallel *dp, struct model_state *sum)
{
    const struct gathering *g = gathering_own_state(dp);
    sum->weights += (uint64_t)g->most * dtype_size(data_format(dp, KIND_WEIGHT));
}

static void add_moves(const struct data_parallel *dp, const int times[], struct tier_traffic *traffic)
{
    for (int i = 0; i < dp->units; i++)
        add_reads(traffic, times[i], dp->unit[i].copied_w, data_format(dp, KIND_WEIGHT));
}

static void gathering_moves(const struct data_parallel *dp, struct tier_traffic *traffic)
{
    add_moves(dp, gathering_own_state(dp)->reads, traffic);
}

static void first_moves(const struct data_parallel *dp, struct tier_traffic *traffic)
{
    add_moves(dp, gathering_own_state(dp)->first_reads, traffic);
}

const struct data_stage stage_gathering = {
    .name = "gathering", .takes_part = makes_weights, .state = sizeof (struct gathering), .outline = open_lists,
    .close = close_lists, .make = gathering_make,
    .unmake = unmake, .acquire = gathering_acquire, .release = gathering_release, .foresee = foresee,
        .cost = gathering_cost, .passing = gathering_passing,
    .moves = gathering_moves, .first_cost = first_cost, .first_moves = first_moves,
};
