/* adapters.c -- low-rank adapters of matrices that do not train: passes read merged copies W + s B A, and the gradients
 * of A and B are folded from those of the copies.
 *
 * Source   E. Hu et al., "LoRA", arXiv:2106.09685
 * Memory   the weights n/w; while a part is used, a copy of its unit with such matrices (as gathered weights are); in
 *          its backward pass the gradient of that unit, which is dropped when it is folded.  If A and B are gathered, a
 *          whole copy of them stays, for a backward pass for weights gathers nothing.  Gradients and states of
 *          the optimizer are those of A and B alone: rank (in + out) numbers of a matrix [out, in]
 * Sends    each device folds its own piece of a matrix.  The parts of dA and dB are added up once for each step of the
 *          optimizer, after the reduction over dp: an all-reduce along tp, or along etp for experts apart, of
 *          rank (in + out) numbers a matrix
 * Equals   ref/model/adapters.h: merged weights bit for bit; gradients reassociate
 * Called   data.c calls the stages for each part.  ERR_MEMORY without room for a gradient; ERR_COMM of the sum.
 */
#include "emulated_devices/schemes/data/stages/bucket.h"
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/schemes/data/units.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/adapters.h"
#include "ref/model/params.h"
#include <stdlib.h>

/* A matrix of this device with its adapter, and the unit of the matrix. */
struct adapter { struct parameter *w, *a, *b; struct unit *unit; };

struct adapting { int count; struct adapter *of; };

static struct adapting *adapting_of(const struct data_parallel *dp) { return chain_state(dp, &stage_adapters); }

bool merges_adapters(const struct data_parallel *dp) { return dp->config->adapters.rank > 0; }

/* ---- which there are --------------------------------------------------------------------------------------------- */

static enum error_code list_adapters(struct data_parallel *dp, struct error *err)
{
    struct adapting *const all = adapting_of(dp);
    all->of = calloc((size_t)dp->parameters->count + 1, sizeof *all->of);
    if (all->of == NULL) return fail(err, ERR_MEMORY, "no memory for a list of adapters");
    for (int i = 0; i < dp->parameters->count; i++) {
        struct parameter *const a = &dp->parameters->all[i];
        if (a->spec.role != ROLE_LOW_IN) continue;
        struct parameter *const w = parameter_find(dp->parameters, param_adapted(dp->config, a->index));
        all->of[all->count++] = (struct adapter){ w, a, parameter_find(dp->parameters, a->index + 1),
                                                  &dp->unit[data_unit_of(dp->config, &dp->request, w)] };
    }
    return OK;
}

static bool is_of_adapters(const struct unit *unit)
{
    return unit->count > 0 && unit->parameter[0].spec.role == ROLE_LOW_IN;
}

/* The copy that stays of A and B, for backward passes for weights, which gather nothing. */
static int64_t low_elements(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    (void)dp, (void)kind;
    return is_of_adapters(unit) && unit->passing_w ? whole_elements(unit) : -1;
}

/* An A or a B, gathered or as it was when its part was used last: weights change only between steps. */
static struct tensor low_matrix(const struct data_parallel *dp, const struct parameter *parameter)
{
    const struct unit *const u = &dp->unit[data_unit_of(dp->config, &dp->request, parameter)];
    if (!u->passing_w) return parameter->w;
    return parameter_view(parameter, slice(u->low, (struct interval){ parameter->place, 0 }).data, u->low.dtype);
}

static void drop_list(struct data_parallel *dp) { free(adapting_of(dp)->of); }

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* A piece of a matrix row by row: `at` is its next number. */
struct walk { int64_t at, row, column; };

/* Call f for the first n numbers of a piece. */
static void each_number(const struct layout *layout, int64_t n, void (*f)(void *, struct walk), void *context)
{
    int64_t at = 0;
    for (int i = 0; i < layout->boxes; i++) {
        const struct box *const b = &layout->box[i];
        for (int64_t r = 0; r < b->extent[0]; r++)
            for (int64_t c = 0; c < b->extent[1] && at < n; c++)
                f(context, (struct walk){ at++, b->start[0] + r, b->start[1] + c });
    }
}

struct merging { struct tensor W, A, B; double s; };

static void merge_number(void *context, struct walk walk)
{
    const struct merging *const m = context;
    const int64_t rank = tensor_rows(m->A), in = tensor_cols(m->A);
    double sum = 0;
    for (int64_t r = 0; r < rank; r++)
        sum += tensor_get(m->B, walk.row * rank + r) * tensor_get(m->A, r * in + walk.column);
    tensor_set(m->W, walk.at, tensor_get(m->W, walk.at) + m->s * sum);
}

/* W of the copy += s B A. */
static void merge_one(struct data_parallel *dp, const struct adapter *adapter)
{
    const int64_t n = layout_count(&adapter->w->layout), rank = dp->config->adapters.rank;
    device_charge(dp->device, "merge adapters", elementwise_cost(n, 2, 2.0 * (double)rank, adapter->w->w.dtype));
    if (!dp->device->backend->has_numbers) return;
    struct views v = views_of(dp->device);
    struct merging m = { .A = view_read(&v, adapter->a->w), .B = view_read(&v, adapter->b->w),
                         .W = view_write(&v, adapter->w->w), .s = adapters_scale(dp->config) };
    each_number(&adapter->w->layout, n, merge_number, &m);
    views_end(&v);
}

/* Merge the copies of a use's units; those that are still merged from the use before stay. */
static enum error_code adapters_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    const struct adapting *const all = adapting_of(dp);
    int unit[PART_UNITS];
    (void)ahead, (void)err;
    for (int i = 0, n = units_at(dp, use, unit); i < n; i++) {
        struct unit *const u = &dp->unit[unit[i]];
        if (is_of_adapters(u) && u->passing_w) device_copy(dp->device, u->low.data, u->w.data, tensor_bytes(u->low));
        if (!u->adapted || u->moved || u->count == 0) continue;
        for (int k = 0; k < all->count; k++)
            if (all->of[k].unit == u) merge_one(dp, &all->of[k]);
        u->moved = true;
    }
    return OK;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static void drop_gradient(struct data_parallel *dp, struct unit *unit)
{
    device_free(dp->device, unit->g);
    unit->g.data = NULL;
    show_gradients(unit);
}

/* Before a pass adds to the gradients of adapters, make room for those of their matrices. */
static enum error_code adapters_begin(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    const struct adapting *const all = adapting_of(dp);
    for (int k = 0; k < all->count; k++) {
        struct unit *const of = all->of[k].unit;
        const bool own = all->of[k].a >= unit->parameter && all->of[k].a < unit->parameter + unit->count;
        if (!own || of->g.data != NULL) continue;
        of->g.data = arena_alloc(&dp->device->arena, GRADIENTS, tensor_bytes(of->g));
        if (of->g.data == NULL)
            return fail(err, ERR_MEMORY, "no memory for the gradient of %s, from which that of its adapter is folded",
                        all->of[k].w->spec.name);
        device_zero(dp->device, of->g);
        show_gradients(of);
    }
    return OK;
}

/* parts: sums of this piece's terms, [rank, in] and then [out, rank]. */
struct folding { struct tensor dW, A, B; double *in, *out; };

static void fold_number(void *context, struct walk walk)
{
    const struct folding *const f = context;
    const int64_t rank = tensor_rows(f->A), in = tensor_cols(f->A);
    const double d = tensor_get(f->dW, walk.at);
    for (int64_t r = 0; r < rank; r++) {
        f->in[r * in + walk.column] += tensor_get(f->B, walk.row * rank + r) * d;
        f->out[walk.row * rank + r] += d * tensor_get(f->A, r * in + walk.column);
    }
}

static void add_scaled(struct tensor g, const double *sum, double s)
{
    for (int64_t i = 0; i < tensor_count(g); i++) tensor_set(g, i, tensor_get(g, i) + s * sum[i]);
}

/* dA += s B^T dW, dB += s dW A^T, of the numbers of the piece that no earlier device has. */
static enum error_code fold_one(struct data_parallel *dp, const struct adapter *adapter, struct error *err)
{
    const int64_t of_A = tensor_count(adapter->a->g), of_B = tensor_count(adapter->b->g);
    device_charge(dp->device, "fold adapters", elementwise_cost(adapter->w->own, 1,
                                                                4.0 * (double)dp->config->adapters.rank,
                                                                adapter->w->g.dtype));
    if (!dp->device->backend->has_numbers) return OK;
    double *const sums = calloc((size_t)(of_A + of_B), sizeof *sums);
    if (sums == NULL) return fail(err, ERR_MEMORY, "no memory to fold the gradient of %s", adapter->w->spec.name);
    struct views v = views_of(dp->device);
    struct folding f = { .dW = view_read(&v, adapter->w->g), .A = view_read(&v, low_matrix(dp, adapter->a)),
                         .B = view_read(&v, low_matrix(dp, adapter->b)), .in = sums, .out = sums + of_A };
    each_number(&adapter->w->layout, adapter->w->own, fold_number, &f);
    add_scaled(view_write(&v, adapter->a->g), f.in, adapters_scale(dp->config));
    add_scaled(view_write(&v, adapter->b->g), f.out, adapters_scale(dp->config));
    views_end(&v);
    free(sums);
    return OK;
}

/* After a pass, fold the gradients of its matrices.  Folding is linear, so each pass folds its own. */
static enum error_code adapters_end(struct data_parallel *dp, struct use use, struct error *err)
{
    const struct adapting *const all = adapting_of(dp);
    int unit[PART_UNITS];
    enum error_code e = OK;
    for (int i = 0, n = units_at(dp, use, unit); i < n && !e; i++) {
        struct unit *const u = &dp->unit[unit[i]];
        for (int k = 0; k < all->count && u->adapted && u->g.data && !e; k++)
            if (all->of[k].unit == u) e = fold_one(dp, &all->of[k], err);
        if (u->adapted && u->g.data) drop_gradient(dp, u);
    }
    return e;
}

/* Only after an error a gradient is still there. */
static void adapters_unmake(struct data_parallel *dp, struct unit *unit)
{
    if (unit->adapted && unit->g.data) drop_gradient(dp, unit);
}

const struct data_stage stage_adapters = {
    .name = "adapters", .takes_part = merges_adapters, .state = sizeof(struct adapting), .outline = list_adapters,
    .close = drop_list, .unmake = adapters_unmake, .acquire = adapters_acquire, .begin = adapters_begin,
    .end = adapters_end, .keeps = { { offsetof(struct unit, low), PARAMETERS, KIND_WEIGHT, low_elements } }, .kept = 1,
};

/* ---- sums over the pieces ---------------------------------------------------------------------------------------- */

/* Elements of gradients that exist beside the others while a pass is folded. */
struct adapter_sums { int64_t more; };

static bool sums_take_part(const struct data_parallel *dp) { return merges_adapters(dp) && has_gradients(dp); }

/* The devices with other pieces of the same matrices; NULL: there are none. */
static struct group *beside(const struct data_parallel *dp, const struct unit *unit, bool *experts)
{
    *experts = unit->parameter[0].apart;
    struct group *const g = *experts ? dp->along_etp : dp->along_tp;
    return g && g->size > 1 ? g : NULL;
}

/* The gradients are where they will be stepped; each device has its pieces' part of them. */
static enum error_code sum_pieces(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    bool experts;
    data_wait_for_streams(dp);
    for (int u = 0; u < dp->units && !e; u++) {
        struct group *const g = is_of_adapters(&dp->unit[u]) ? beside(dp, &dp->unit[u], &experts) : NULL;
        const struct tensor own = data_own_gradient(&dp->unit[u]);
        if (g) e = allreduce(g, own.data, tensor_count(own), own.dtype, SUM, dp->allreduce, err);
    }
    return e;
}

struct account data_adapters_cost(const struct data_parallel *dp, bool of_experts)
{
    struct account sum = { 0 };
    bool experts;
    for (int u = 0; u < dp->units && dp->chain && chain_state(dp, &stage_adapter_sums); u++) {
        const struct group *const g = is_of_adapters(&dp->unit[u]) ? beside(dp, &dp->unit[u], &experts) : NULL;
        if (g && experts == of_experts)
            account_add(&sum, allreduce_cost(dp, g, kept_elements(&dp->unit[u], BY_OPTIMIZER)), dp->updates);
    }
    return sum;
}

static int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* How much more there is at once when gradients of merged matrices are beside those of the list. */
static void foresee_folding(struct data_parallel *dp)
{
    struct adapter_sums *const s = chain_state(dp, &stage_adapter_sums);
    int64_t without = 0, with = 0;
    for (int i = 0; i < dp->uses; i++) {
        int unit[PART_UNITS];
        int64_t merged = 0, others = data_scatters(dp) ? dp->use[i].gradients.during : 0;
        without = larger_of(without, others);
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        for (int k = 0, n = units_at(dp, dp->use[i], unit); k < n; k++)
            if (dp->unit[unit[k]].adapted) merged += whole_elements(&dp->unit[unit[k]]);
        with = larger_of(with, others + merged);
    }
    s->more = with > without ? with - without : 0;
}

static void folding_passing(const struct data_parallel *dp, struct model_state *sum)
{
    const struct adapter_sums *const s = chain_state(dp, &stage_adapter_sums);
    sum->gradients += (uint64_t)s->more * dtype_size(data_format(dp, KIND_GRADIENT));
}

const struct data_stage stage_adapter_sums = {
    .name = "sums of adapters", .takes_part = sums_take_part, .state = sizeof(struct adapter_sums),
    .finish = sum_pieces, .foresee = foresee_folding, .passing = folding_passing,
};
