/* open.c -- creates the engine's units and their memory, with each stage of the chain.
 *
 * model/trainer_open.c calls data_outline, checks the plan by its predictions, and then calls data_fill.  All is
 * local.  Errors are ERR_PLAN, ERR_MEMORY, and ERR_FILE of a slow tier; data_close works after each.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/model/adapters.h"
#include <stdlib.h>

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* sharing[0] is for all units, sharing[1] for experts that only some devices have. */
static enum error_code open_sharing(struct data_parallel *dp, struct error *err)
{
    dp->sharing = calloc(2, sizeof *dp->sharing);
    if (dp->sharing == NULL) return fail(err, ERR_MEMORY, "no memory for a list of groups");
    const enum error_code e = sharing_open(dp->sharing, &dp->request, &dp->shards, dp->group, err);
    return e || !dp->experts ? e
                             : sharing_open(dp->sharing + 1, &dp->request, &dp->expert_shards, dp->experts, err);
}

/* open_units divides the list of parameters into units, and lays out each unit's row. */
static enum error_code open_units(struct data_parallel *dp, struct error *err)
{
    struct parameters *ps = dp->parameters;
    dp->units = data_unit_count(dp->config, &dp->request);
    dp->unit = calloc((size_t)dp->units, sizeof *dp->unit);
    if (dp->unit == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d units", dp->units);
    for (int i = 0, n = 0; n < dp->units; n++) {
        const int first = i;
        struct unit *u = &dp->unit[n];
        /* Parameters are listed by unit, so those of a unit are neighbours. */
        while (i < ps->count && data_unit_of(dp->config, &dp->request, &ps->all[i]) == n) i++;
        /* The index is 1 for units of such experts. */
        struct sharing *over = dp->sharing + (dp->experts && data_unit_is_of_experts(dp->config, &dp->request, n));
        unit_lay_out(u, &ps->all[first], i - first, &over->shards, dp->scheme->rows);
        u->over = over;
        u->experts = i > first && ps->all[first].spec.expert >= 0;
        u->frozen = i > first && data_unit_kind(dp->config, &ps->all[first].spec) == UNITS_FROZEN;
        for (int k = first; k < i; k++) u->adapted = u->adapted || param_is_adapted(dp->config, &ps->all[k].spec);
        /* The gradient has a size from now on, and memory only once a stage gives some. */
        u->g = tensor_1d(NULL, data_format(dp, KIND_GRADIENT), whole_elements(u));
    }
    return OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* data_zeros asks the stages for a place first; without one the elements come from the device's arena. */
struct tensor data_zeros(struct data_parallel *dp, const struct unit *unit, enum arena_tag tag, enum tensor_kind kind,
                         int64_t n, bool *failed)
{
    struct tensor t = tensor_none;
    for EACH_LINK(dp, l)
        if (unit && l->stage->place && !tensor_present(t)) t = l->stage->place(dp, unit, tag, data_format(dp, kind), n);
    /* A stage, such as the slow tier, had a place for these elements. */
    if (tensor_present(t)) return t;
    t = device_tensor_in(dp->device, tag, data_format(dp, kind), n);
    if (t.data) device_zero(dp->device, t);
    *failed = *failed || t.data == NULL;
    return t;
}

/* Memory on the slow tier is freed with the tier. */
void data_give_back(struct data_parallel *dp, struct tensor t)
{
    if (!on_tier(dp, t)) device_free(dp->device, t);
}

int64_t keeping_elements(const struct data_parallel *dp, const struct unit *unit, const struct keeping *keeping)
{
    /* A unit that does not train has weights alone. */
    if (unit->frozen && keeping->tag != PARAMETERS) return -1;
    return keeping->elements ? keeping->elements(dp, unit, keeping->kind)
           : data_kept(&unit->over->shards, unit, keeping->kind).count;
}

/* A stage names a field of struct unit by its offset. */
static struct tensor *keeping_of(struct unit *unit, const struct keeping *keeping)
{
    return (struct tensor *)((char *)unit + keeping->at);
}

/* -1 elements mean that the unit has no such tensor. */
static void make_kept(struct data_parallel *dp, struct unit *unit, const struct keeping *keeping, bool *failed)
{
    const int64_t n = keeping_elements(dp, unit, keeping);
    if (n >= 0) *keeping_of(unit, keeping) = data_zeros(dp, unit, keeping->tag, keeping->kind, n, failed);
}

/* If a tensor is kept whole, this device's part is a view of it, not a second copy. */
static void make_unit(struct data_parallel *dp, struct unit *unit, bool *failed)
{
    unit->own_w = unit->w = data_zeros(dp, unit, PARAMETERS, KIND_WEIGHT, kept_elements(unit, BY_WEIGHTS), failed);
    unit->shard = on_tier(dp, unit->own_w) ? tensor_none : unit->own_w;
    for EACH_LINK(dp, l)
        for (int i = 0; i < l->stage->kept; i++) make_kept(dp, unit, &l->stage->keeps[i], failed);
    TELL(dp, make, unit);
}

/* unmake_unit frees in reverse: first what stages made, then the kept tensors, then the weights. */
static void unmake_unit(struct data_parallel *dp, struct unit *unit)
{
    TELL(dp, unmake, unit);
    for EACH_LINK(dp, l)
        for (int i = 0; i < l->stage->kept; i++)
            if (keeping_elements(dp, unit, &l->stage->keeps[i]) >= 0)
                data_give_back(dp, *keeping_of(unit, &l->stage->keeps[i]));
    data_give_back(dp, unit->own_w);
    tracking_close(&unit->tracking);
}

/* The sum follows from sizes alone, so data_outline is enough to know the sum. */
struct model_state unit_kept_bytes(const struct data_parallel *dp, const struct unit *unit)
{
    struct model_state sum = {
        .weights = (uint64_t)kept_elements(unit, BY_WEIGHTS) * dtype_size(data_format(dp, KIND_WEIGHT))
    };
    for EACH_LINK(dp, l)
        for (int i = 0; i < l->stage->kept; i++) {
            const struct keeping *k = &l->stage->keeps[i];
            const int64_t n = keeping_elements(dp, unit, k);
            if (n > 0) *model_state_of(&sum, k->tag) += (uint64_t)n * dtype_size(data_format(dp, k->kind));
        }
    return sum;
}

/* Gradients in one block belong to no unit, so their bytes are added apart. */
struct model_state data_kept_bytes(const struct data_parallel *dp)
{
    struct model_state sum = { .gradients = tensor_bytes(dp->gradients) };
    for (int u = 0; u < dp->units; u++) {
        const struct model_state one = unit_kept_bytes(dp, &dp->unit[u]);
        sum.weights += one.weights, sum.gradients += one.gradients, sum.optimizer += one.optimizer;
    }
    return sum;
}

/* Without memory (u->w.data NULL) every view becomes NULL, too: the weights are not on the device. */
void show_weights(struct unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        struct parameter *p = &unit->parameter[i];
        p->w = parameter_view(p, slice(unit->w, (struct interval){ p->place, 0 }).data, unit->w.dtype);
    }
}

void show_gradients(struct unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        struct parameter *p = &unit->parameter[i];
        p->g = parameter_view(p, slice(unit->g, (struct interval){ p->place, 0 }).data, unit->g.dtype);
    }
}

/* ---- initial weights --------------------------------------------------------------------------------------------- */

struct draw { const struct data_parallel *dp; struct tensor own; int64_t first; uint64_t seed; };

/* A drawn number depends on its place in the whole parameter, not on the device. */
static void draw_stretch(void *context, struct portion portion)
{
    const struct draw *d = context;
    const struct drawn which = { &portion.parameter->spec, &portion.parameter->layout, portion.piece };
    device_draw(d->dp->device, slice(d->own, (struct interval){ portion.row - d->first, portion.length }),
                which, d->seed);
}

/* open_draw fills this device's part of a unit's weights or masters with the initial weights. */
static void open_draw(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind, uint64_t seed)
{
    const struct interval own = data_kept(&unit->over->shards, unit, kind);
    struct draw d = { dp, data_kept_tensor(dp, unit, kind), own.first, seed };
    unit_each_stretch(unit, own, draw_stretch, &d);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

enum error_code data_outline(struct data_parallel *dp, struct error *err)
{
    dp->outer = data_outer(&dp->request);
    dp->request.allgather = data_allgather(&dp->request);
    /* direction.c replaces this function for optimizers without gradients. */
    dp->step_stretch = step_by_gradient;
    dp->expert_shards = (struct shards){ .P = 1, .weights = 1, .gradients = 1, .optimizer = 1 };
    enum error_code e = data_shards(&dp->shards, &dp->request, dp->group->size, dp->group->rank, err);
    if (!e && dp->experts)
        e = data_expert_shards(&dp->expert_shards, &dp->request, &dp->shards, dp->experts->size, dp->experts->rank,
                               err);
    if (!e) e = open_sharing(dp, err);
    if (!e) e = open_units(dp, err);
    if (!e) e = chain_make(dp, err);
    if (e) return e;
    /* Every stage prepares its lists and sizes; predictions are possible from here on. */
    CALL(e, dp, outline, err);
    return e;
}

enum error_code data_fill(struct data_parallel *dp, uint64_t seed, struct error *err)
{
    bool failed = false;
    enum error_code e = OK;
    /* The stages fill first, because units may be placed on the slow tier. */
    CALL(e, dp, fill, err);
    for (int u = 0; u < dp->units && !e; u++) make_unit(dp, &dp->unit[u], &failed);
    if (failed) e = fail(err, ERR_MEMORY, "no memory for weights, gradients and optimizer state");
    if (e) return e;
    for (int u = 0; u < dp->units; u++) {
        open_draw(dp, &dp->unit[u], KIND_WEIGHT, seed);
        /* Masters are drawn, not widened, so they have the digits that rounding took from weights. */
        if (data_has_masters(dp)) open_draw(dp, &dp->unit[u], KIND_MASTER, seed);
        show_weights(&dp->unit[u]);
        show_gradients(&dp->unit[u]);
    }
    /* The drawn weights get the values that a step would give: rounded by codes, and in both versions. */
    e = data_requantise(dp, err);
    data_same_versions(dp);
    data_start_round(dp);
    return e;
}

enum error_code data_open(struct data_parallel *dp, uint64_t seed, struct error *err)
{
    const enum error_code e = data_outline(dp, err);
    return e ? e : data_fill(dp, seed, err);
}

void data_close(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && dp->unit && dp->chain; i++) unmake_unit(dp, &dp->unit[i]);
    /* A stage may have failed before its memory existed; close functions accept zeros. */
    for (struct data_link *l = dp->chain; l != NULL && l->stage != NULL; l++)
        if (l->stage->close) l->stage->close(dp);
    chain_free(dp);
    for (int i = 0; i < 2 && dp->sharing; i++) sharing_close(dp->sharing + i);
    free(dp->sharing), free(dp->unit), free(dp->use);
    dp->sharing = NULL, dp->unit = NULL, dp->use = NULL;
}
