/* data.c -- the seam: passes each call to the plan's chain of stages.
 *
 * model/stage.c acquires and releases weights and ends gradients; model/trainer.c finishes gradients and steps.  The
 * calls are collective over dp wherever a stage sends something.  Errors are those of the stages, and ERR_PLAN if a
 * part is used out of the list's order.  After an error the step cannot go on.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/model/config.h"

/* Part 0 needs the token embedding and the positions; every other part needs one block's unit. */
int data_units_of(const struct model_config *config, int part, int unit[])
{
    int n = 0;
    if (part == 0) unit[n++] = UNIT_TOKENS, unit[n++] = UNIT_POSITIONS;
    else unit[n++] = UNIT_BLOCKS + part - 1;
    /* A tied output matrix is the embedding's unit: the last part uses it again. */
    if (part == (int)config->L + 1 && config->tied) unit[n++] = UNIT_TOKENS;
    return n;
}

/* ---- the list of passes ------------------------------------------------------------------------------------------ */

/* A tile is used beside the untiled parameters of its part, so both are needed. */
int units_at(const struct data_parallel *dp, struct use use, int unit[PART_UNITS])
{
    int n = data_units_of_part(dp->config, &dp->request, use.part, unit);
    if (use.tile > 0) unit[n++] = use.tile;
    return n;
}

/* A pass through a tile adds to that tile's gradient only; what does not train has none. */
int gradients_at(const struct data_parallel *dp, struct use use, int unit[PART_UNITS])
{
    if (use.tile > 0) return unit[0] = use.tile, 1;
    const int all = units_at(dp, use, unit);
    int n = 0;
    for (int k = 0; k < all; k++)
        if (!dp->unit[unit[k]].frozen) unit[n++] = unit[k];
    return n;
}

/* The result is the place in the list of the next pass that reads weights; -1: none before the weights change. */
int next_weight_use(const struct data_parallel *dp, int use)
{
    /* Inference runs the same list over and over: after its last use comes the first. */
    if (dp->request.infers) return dp->uses > 0 ? (use + 1) % dp->uses : -1;
    /* The next use counts only while the weights stay the same. */
    for (int i = use + 1; i < dp->uses && !renews_weights(dp->use[i].pass); i++)
        /* Backward for weights reads no weights; a pass that renews them ends the search. */
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) return i;
    return -1;
}

void count_due(struct data_parallel *dp, int from_use)
{
    for (int u = 0; u < dp->units; u++) dp->unit[u].due = 0;
    /* The list is counted from `from_use` to the next optimizer step. */
    for (int i = from_use; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++) {
        int unit[PART_UNITS];
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        /* due: how many passes will still add to the unit before the next update. */
        for (int k = 0, n = gradients_at(dp, dp->use[i], unit); k < n; k++) dp->unit[unit[k]].due++;
    }
}

/* After an update: continue in the list, or start it again at its end. */
static void go_on(struct data_parallel *dp)
{
    dp->at = dp->at < dp->uses ? dp->at + 1 : 0;
    count_due(dp, dp->at);
}

void data_set_uses(struct data_parallel *dp, struct use *use, int uses)
{
    dp->use = use;
    /* go_on() begins at 0, because `at` stands at the end of the list. */
    dp->at = dp->uses = uses;
    /* An update follows the list, and more updates may stand inside the list. */
    dp->updates = 1;
    for (int i = 0; i < uses; i++) dp->updates += use[i].pass == PASS_UPDATE;
    TELL(dp, foresee);
    go_on(dp);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Whether the next pass uses this part as a whole, not tile by tile. */
static bool is_whole_use(const struct data_parallel *dp, int part)
{
    return dp->at < dp->uses && dp->use[dp->at].part == part && dp->use[dp->at].tile == 0 &&
           dp->use[dp->at].pass != PASS_BACKWARD_WEIGHT;
}

/* All stages acquire in the order of the chain.  Only a whole use looks ahead to the next part. */
static enum error_code acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    enum error_code e = OK;
    CALL(e, dp, acquire, use, ahead && !dp->request.no_prefetch, err);
    return e;
}

/* draw/ watches the calls; training itself does not read the watch. */
static void tell_watch(const struct data_parallel *dp, enum data_call call, int part)
{
    if (dp->watch) dp->watch->saw(dp->watch, dp, call, part);
}

/* With tiled matrices this acquires only the untiled parameters; the first tile's use is next in the list. */
enum error_code data_acquire(struct data_parallel *dp, int part, struct error *err)
{
    if (dp->at >= dp->uses || dp->use[dp->at].part != part)
        return fail(err, ERR_PLAN, "part %d of the model is used, where the list of passes has another", part);
    /* The list says which version of the weights this pass uses. */
    const struct use use = { .part = part, .older = dp->use[dp->at].older };
    const enum error_code e = acquire(dp, use, is_whole_use(dp, part), err);
    tell_watch(dp, DATA_ACQUIRED, part);
    return e;
}

/* In inference the list starts again after its last pass. */
static void advance(struct data_parallel *dp)
{
    dp->at++;
    if (dp->request.infers && dp->at == dp->uses) dp->at = 0;
}

void data_release(struct data_parallel *dp, int part)
{
    int unit[PART_UNITS];
    /* A part that is used whole advances the list here; with tiles each tile has advanced the list. */
    const bool whole = is_whole_use(dp, part);
    for (int i = 0, n = units_at(dp, (struct use){ .part = part }, unit); i < n; i++)
        /* A tiled use has advanced with its last tile already. */
        TELL(dp, release, whole ? dp->at : dp->at - 1, unit[i]);
    if (whole) advance(dp);
    tell_watch(dp, DATA_RELEASED, part);
}

/* The model asks for tiles in the order of the list; another order is an error of the model. */
enum error_code data_acquire_tile(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    if (dp->at >= dp->uses || dp->use[dp->at].tile != data_unit_of(dp->config, &dp->request, tile))
        return fail(err, ERR_PLAN, "tile %d of %s is used, where the list of passes has another", tile->tile,
                    tile->spec.name);
    return acquire(dp, dp->use[dp->at], true, err);
}

void data_release_tile(struct data_parallel *dp, const struct parameter *tile)
{
    TELL(dp, release, dp->at, data_unit_of(dp->config, &dp->request, tile));
    advance(dp);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* begin prepares the gradients of all units of a use, stage by stage. */
static enum error_code begin(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[PART_UNITS];
    enum error_code e = OK;
    for (int i = 0, n = gradients_at(dp, use, unit); i < n; i++)
        CALL(e, dp, begin, &dp->unit[unit[i]], err);
    return e;
}

/* The counts go down before the stages are called: a stage reads due == 0 as the last pass. */
static enum error_code end(struct data_parallel *dp, struct use use, struct error *err)
{
    int unit[PART_UNITS];
    enum error_code e = OK;
    for (int i = 0, n = gradients_at(dp, use, unit); i < n; i++) dp->unit[unit[i]].due--;
    CALL(e, dp, end, use, err);
    dp->at++;
    return e;
}

static struct use use_of_part(int part) { return (struct use){ .part = part }; }

static struct use use_of_tile(const struct data_parallel *dp, const struct parameter *parameter)
{
    return (struct use){ .tile = data_unit_of(dp->config, &dp->request, parameter) };
}

enum error_code data_begin_gradient(struct data_parallel *dp, int part, struct error *err)
{
    const enum error_code e = begin(dp, use_of_part(part), err);
    tell_watch(dp, DATA_GRADIENT_BEGUN, part);
    return e;
}
enum error_code data_end_gradient(struct data_parallel *dp, int part, struct error *err)
{
    const enum error_code e = end(dp, use_of_part(part), err);
    tell_watch(dp, DATA_GRADIENT_ENDED, part);
    return e;
}

enum error_code data_begin_tile_gradient(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    return begin(dp, use_of_tile(dp, tile), err);
}

enum error_code data_end_tile_gradient(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    return end(dp, use_of_tile(dp, tile), err);
}

enum error_code data_finish_gradients(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    /* The order is: last reductions, then all streams, then settle, because settle may move what was just reduced. */
    CALL(e, dp, finish, err);
    data_wait_for_streams(dp);
    TELL(dp, settle);
    go_on(dp);
    tell_watch(dp, DATA_GRADIENTS_FINISHED, -1);
    return e;
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* low_rank.c decides by this number how gradients are reduced; other stages ignore the call. */
void data_expect_step(struct data_parallel *dp, int64_t t)
{
    TELL(dp, expect, t);
}

/* All gradients become zero, for the next step's passes. */
static void clear(struct data_parallel *dp)
{
    for (int u = 0; u < dp->units; u++)
        if (!dp->unit[u].frozen) TELL(dp, clear, &dp->unit[u]);
}

/* A skipped step changes neither weights nor states. */
void data_skip_step(struct data_parallel *dp)
{
    clear(dp);
    TELL(dp, skip);
}

/* New weights are shared, unless an outer step follows, which changes them. */
enum error_code data_step(struct data_parallel *dp, int64_t t, double gradient_scale, struct error *err)
{
    const struct step step = {
        .lr = learning_rate(dp->hyper, t), .t = t, .gradient_scale = gradient_scale, .hyper = dp->hyper
    };
    /* `share` is false where the outer step will change these weights again. */
    const bool share = !outer_follows(&dp->outer, t);
    enum error_code e = OK;
    /* versions.c copies the weights to the older version here, before the step changes the newest. */
    TELL(dp, before);
    CALL(e, dp, step, step, share && !dp->stops_half, err);
    if (dp->stops_half) return e;
    /* Units that are sent together wait for each other: the last ones go now. */
    if (!e) e = share_weights(dp, NULL, err);
    dp->stepped = true;
    data_expect_step(dp, t + 1);
    clear(dp);
    CALL(e, dp, after, t, err);
    tell_watch(dp, DATA_STEPPED, -1);
    return e;
}

/* ---- sums over the chain ----------------------------------------------------------------------------------------- */

/* Each stage adds its own messages on this level.  The levels together are the whole traffic along dp. */
struct account data_level_cost(const struct data_parallel *dp, enum shard_level level)
{
    struct account sum = { 0 };
    TELL(dp, cost, level, &sum);
    return sum;
}

struct account data_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS; l++) account_add(&sum, data_level_cost(dp, l), 1);
    return sum;
}

struct model_state data_resident(const struct data_parallel *dp)
{
    /* The device has the tensors that are kept, less those on the slow tier. */
    const struct model_state kept = data_kept_bytes(dp), away = data_offloaded(dp);
    return (struct model_state){ kept.weights - away.weights, kept.gradients - away.gradients,
                                 kept.optimizer - away.optimizer };
}

struct model_state data_peak(const struct data_parallel *dp)
{
    const struct model_state here = data_resident(dp);
    struct model_state more = { 0 };
    /* The stages add what exists beside the kept tensors for a while. */
    TELL(dp, passing, &more);
    return (struct model_state){ here.weights + more.weights, here.gradients + more.gradients,
                                 here.optimizer + more.optimizer };
}

bool data_keeps_weights(const struct data_parallel *dp, int part)
{
    int unit[PART_UNITS];
    /* A device may have no expert of the part, and so no unit of experts; the others' experts are here or away. */
    bool kept = dp->expert_shards.weights == 1 && !dp->shards.late && !offloads(&dp->request, PARAMETERS);
    for (int k = 0, units = units_at(dp, (struct use){ .part = part }, unit); k < units; k++)
        kept = kept && !dp->unit[unit[k]].passing_w;
    return kept;
}

uint64_t data_part_bytes(const struct data_parallel *dp, int part, enum pass pass)
{
    const bool gradients = pass == PASS_BACKWARD_WEIGHT;
    int64_t n = 0;
    int unit[PART_UNITS];
    /* The bytes are those of whole weights, or whole gradients, of the part's units. */
    for (int k = 0, units = units_at(dp, (struct use){ .part = part }, unit); k < units; k++) {
        const struct unit *u = &dp->unit[unit[k]];
        /* A passing gradient has memory of its own only if passes do not add to the kept tensor itself. */
        const bool reduced_elsewhere = u->passing_g && (u->over->shards.gradients > 1 || u->copied_g > 0);
        /* The gradient of a matrix with an adapter exists while it is folded. */
        if (gradients ? reduced_elsewhere || u->adapted : u->passing_w) n += whole_elements(u);
    }
    return (uint64_t)n * dtype_size(data_format(dp, gradients ? KIND_GRADIENT : KIND_WEIGHT));
}

void add_reads(struct tier_traffic *traffic, int64_t times, int64_t elements, enum dtype format)
{
    if (elements == 0) return;                          /* an empty move does not count as an operation */
    traffic->reads += (uint64_t)times;
    traffic->bytes_read += (uint64_t)(times * elements) * dtype_size(format);
}

void add_writes(struct tier_traffic *traffic, int64_t times, int64_t elements, enum dtype format)
{
    if (elements == 0) return;
    traffic->writes += (uint64_t)times;
    traffic->bytes_written += (uint64_t)(times * elements) * dtype_size(format);
}

/* The predictions of moves add up over the stages, as those of messages do. */
struct tier_traffic data_tier_traffic(const struct data_parallel *dp)
{
    struct tier_traffic t = { 0 };
    TELL(dp, moves, &t);
    return t;
}

struct account data_first_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    TELL(dp, first_cost, &sum);
    return sum;
}

struct tier_traffic data_first_moves(const struct data_parallel *dp)
{
    struct tier_traffic t = { 0 };
    TELL(dp, first_moves, &t);
    return t;
}

struct tier_traffic data_tier_update_traffic(const struct data_parallel *dp)
{
    struct tier_traffic t = { 0 };
    TELL(dp, update_moves, &t);
    return t;
}
