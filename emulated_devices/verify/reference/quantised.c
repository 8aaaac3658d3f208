/* quantised.c -- computes on one device the weights that devices have after gathering codes, block for block.  The
 * callers are reference.c, reference_bounds.c and reference_quantised.c; the only error is ERR_MEMORY. */
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/schemes/data/units.h"
#include "emulated_devices/plan/sections.h"
#include "ref/model/params.h"
#include <stdlib.h>
#include <string.h>

/* The shards over dp are those of the devices: who holds which part of weights, gradients and states. */
static struct shards shards_of(const struct plan *plan)
{
    struct shards s = { .P = 1, .weights = 1, .gradients = 1, .optimizer = 1 };
    data_shards(&s, &plan->data, plan_copies(plan), 0, NULL);
    return s;
}

/* The next of the plans of which weights are: its sections', or the plan itself.  @return NULL after the last. */
static const struct plan *quantised_part(const struct plan *plan, int i)
{
    if (plan->sections) return i < plan->sections->count ? &plan->sections->at[i] : NULL;
    return i == 0 ? plan : NULL;
}

bool quantised_before_use(const struct plan *plan)
{
    bool any = false;
    if (plan->sections == NULL) return plan->data.quantise_weights.bits > 0 && shards_of(plan).weights > 1;
    for (int i = 0; i < plan->sections->count; i++) any = any || quantised_before_use(&plan->sections->at[i]);
    return any;
}

bool quantised_after_step(const struct plan *plan)
{
    const struct shards s = shards_of(plan);
    bool any = false;
    for (int i = 0; plan->sections && i < plan->sections->count; i++)
        any = any || quantised_after_step(&plan->sections->at[i]);
    if (plan->sections) return any;
    return data_renews_quantised(&plan->data, &s);
}

/* This is one unit of a rank along tp.  The pieces of parameters lie one after another; dp shards the row. */
struct whole_unit { struct unit unit; struct parameter *parameter; char *whole, *row; };

/* Collect the pieces of unit `which` that a rank holds.  Lay the pieces out as the devices do, and make room for
 * both forms.  On an error close_unit still frees what is there. */
static enum error_code open_unit(struct whole_unit *unit, const struct plan *plan,
                                 const struct shards *shards, int rank, int which, struct error *err)
{
    const struct data_scheme *scheme;
    const int n = model_param_count(&plan->model);
    int count = 0;
    enum error_code e = data_scheme_find(&scheme, plan->data.scheme, err);
    *unit = (struct whole_unit){ .parameter = calloc((size_t)n, sizeof *unit->parameter) };
    if (!e && unit->parameter == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d parameters", n);
    /* The next piece is always written; it stays only if it belongs to the unit. */
    for (int i = 0; i < n && !e; i++) {
        const struct param_spec spec = model_param(&plan->model, i);
        unit->parameter[count] = plan_piece(plan, rank, i, &spec, 0);
        count += plan_has_layer(plan, spec.layer)
            && data_unit_of(&plan->model, &plan->data, &unit->parameter[count]) == which;
    }
    if (e) return e;
    unit_lay_out(&unit->unit, unit->parameter, count, shards, scheme->rows);
    unit->whole = calloc((size_t)unit->unit.elements + 1, dtype_size(plan->dtype));
    unit->row = calloc((size_t)unit->unit.padded + 1, dtype_size(plan->dtype));
    return unit->whole && unit->row
               ? OK
               : fail(err, ERR_MEMORY, "no memory to quantise %lld elements", (long long)unit->unit.elements);
}

static void close_unit(struct whole_unit *unit)
{
    free(unit->parameter), free(unit->whole), free(unit->row);
}

struct copied { char *whole, *piece; size_t size; bool back; };

/* Copy one contiguous run between a parameter and its piece; `back` is from the piece to the parameter. */
static void copy_run(void *context, struct run run)
{
    const struct copied *c = context;
    char *whole = c->whole + (size_t)run.whole * c->size, *piece = c->piece + (size_t)run.piece * c->size;
    memcpy(c->back ? whole : piece, c->back ? piece : whole, (size_t)run.length * c->size);
}

/* Copy between the model's tensors and the unit's pieces. */
static void quantised_copy(const struct whole_unit *unit, struct tensor *tensor, bool back)
{
    for (int i = 0; i < unit->unit.count; i++) {
        const struct parameter *p = &unit->parameter[i];
        const size_t size = dtype_size(tensor[p->index].dtype);
        struct copied c = { tensor[p->index].data, unit->whole + (size_t)p->place * size, size, back };
        layout_each_run(&p->layout, copy_run, &c);
    }
}

/* Replace one unit's numbers by their dequantised codes, level by level of shards.  A unit that a later rank along
 * tp holds as a copy was replaced already, with the first rank. */
static enum error_code quantise_unit(const struct plan *plan, const struct shards *shards, int rank, int which,
                                     enum shard_level first, enum shard_level last, struct tensor *tensor,
                                     struct error *err)
{
    struct whole_unit x;
    enum error_code e = open_unit(&x, plan, shards, rank, which, err);
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    if (!e && x.unit.count > 0 && tensor_keeps_first(&tp, &x.parameter[0].spec)) {
        const struct interval all = { 0, x.unit.padded };
        quantised_copy(&x, tensor, false);
        /* whole [elements] becomes row [padded]: the blocks of codes count along the row. */
        unit_from_whole(NULL, &x.unit, all, x.row, x.whole, plan->dtype);
        /* Levels go from `first` down to `last`, as the gathers of the devices do. */
        for (int l = (int)first; l >= (int)last && !e; l--)
            e = data_as_gathered(NULL, &plan->data, shards, (enum shard_level)l, &x.unit,
                                 tensor_1d(x.row, plan->dtype, x.unit.padded), err);
        unit_to_whole(NULL, &x.unit, all, x.row, x.whole, plan->dtype);
        quantised_copy(&x, tensor, true);
    }
    close_unit(&x);
    return e;
}

/* Quantise copied pieces only once: quantising a dequantised value again may give another code. */
static enum error_code quantise_part(const struct plan *plan, enum shard_level first, enum shard_level last,
                                     struct tensor *tensor, struct error *err)
{
    const struct shards s = shards_of(plan);
    enum error_code e = OK;
    /* Each rank along tp has other columns and therefore other blocks of codes. */
    for (int tp = 0; tp < plan->mesh.size[TP]; tp++) {
        const int rank = mesh_neighbour(&plan->mesh, plan->mesh.first, TP, tp);
        for (int u = 0; u < data_unit_count(&plan->model, &plan->data) && !e; u++)
            e = quantise_unit(plan, &s, rank, u, first, last, tensor, err);
    }
    return e;
}

static enum error_code quantise(const struct plan *plan, enum shard_level first, enum shard_level last,
                                struct tensor *tensor, struct error *err)
{
    enum error_code e = OK;
    const struct plan *part;
    for (int i = 0; (part = quantised_part(plan, i)) != NULL && !e; i++)
        e = quantise_part(part, first, last, tensor, err);
    return e;
}

enum error_code quantise_before_use(const struct plan *plan, struct tensor *tensor, struct error *err)
{
    return quantise(plan, BY_WEIGHTS, BY_WEIGHTS, tensor, err);
}
enum error_code quantise_after_step(const struct plan *plan, struct tensor *tensor, struct error *err)
{
    return quantise(plan, BY_OPTIMIZER, BY_GRADIENTS, tensor, err);
}
