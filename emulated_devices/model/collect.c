#include "emulated_devices/model/collect.h"
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>

/* ---- what each device keeps -------------------------------------------------------------------------------------- */

/* The layout of a unit on any device, without its numbers.  A unit has the same parameters on all devices that hold
 * it, and they are of one layer. */
struct place_in_unit { struct unit unit; struct parameter *all; struct parameter *own; struct shards shards; };

static enum error_code find_place(const struct trainer *t, int rank, int index, int tile, struct place_in_unit *at,
                                  struct error *err)
{
    const struct plan *plan = &t->plan;
    const struct param_spec of_sought = trainer_spec(t, index);
    const struct parameter sought = plan_piece(plan, rank, index, &of_sought, tile);
    const int unit = data_unit_of(&plan->model, &plan->data, &sought);
    const int first = param_of_layer(&plan->model, of_sought.layer),
              end = param_of_layer(&plan->model, of_sought.layer + 1);
    int count = 0;
    at->all = calloc((size_t)(end - first), sizeof *at->all);
    if (at->all == NULL) return fail(err, ERR_MEMORY, "no memory to find %s in its unit", of_sought.name);
    for (int i = first; i < end; i++) {
        const struct param_spec spec = trainer_spec(t, i);
        at->all[count] = plan_piece(plan, rank, i, &spec, tile);
        if (!plan_has_expert(plan, rank, &spec)) continue;
        if (data_unit_of(&plan->model, &plan->data, &at->all[count]) != unit) continue;
        if (i == index) at->own = &at->all[count];
        count++;
    }
    const enum error_code e = plan_shards(&at->shards, plan, rank, sought.apart, err);
    unit_lay_out(&at->unit, at->all, count, &at->shards, t->data.scheme->rows);
    return e;
}

static enum error_code find_piece(const struct trainer *t, int index, int tile, enum tensor_kind kind,
                                  struct piece *piece, struct error *err)
{
    struct place_in_unit at = { 0 };
    if (data_keeps_whole(&t->data, kind)) {
        piece->kept = (struct interval){ 0, layout_count(piece->layout) };
        piece->keeps_first = plan_copy_of(&t->plan, piece->rank) == 0;
        return OK;
    }
    const enum error_code e = find_place(t, piece->rank, index, tile, &at, err);
    if (!e) {
        piece->kept = unit_owned(&at.unit, data_kept(&at.shards, &at.unit, kind), at.own);
        piece->keeps_first = data_keeps_first(&at.shards, kind);
        piece->replica = kind_is_common(kind) ? 0 : shards_replica_of(&at.shards, at.shards.rank);
    }
    free(at.all);
    return e;
}

static const struct unit *unit_with(const struct trainer *t, const struct parameter *p)
{
    return &t->data.unit[data_unit_of(&t->plan.model, &t->plan.data, p)];
}

enum error_code collect_own(const struct trainer *t, const struct parameter *p, enum tensor_kind kind,
                            struct interval *kept, struct tensor *own, struct error *err)
{
    const struct unit *u = unit_with(t, p);
    const struct interval part = data_kept(&u->over->shards, u, kind);
    const struct tensor whole =
        data_keeps_whole(&t->data, kind) ? data_whole_state(&t->data, p, (int)(kind - KIND_STATE)) : tensor_none;
    *kept = data_keeps_whole(&t->data, kind) ? (struct interval){ 0, tensor_count(whole) } : unit_owned(u, part, p);
    *own = tensor_1d(NULL, data_format(&t->data, kind), kept->count);
    own->data = malloc(tensor_bytes(*own) + 1);
    if (own->data == NULL) return fail(err, ERR_MEMORY, "no memory to collect %s", p->spec.name);
    if (!data_keeps_whole(&t->data, kind))
        unit_take(t->comm->device, u, part, data_kept_tensor(&t->data, u, kind).data, p, own->data, own->dtype);
    else if (kept->count > 0) device_copy(t->comm->device, own->data, whole.data, tensor_bytes(whole));
    return OK;
}

/* ---- to rank 0 --------------------------------------------------------------------------------------------------- */

/* The sender does not learn of a failure here, so a failure ends the job. */
static void receive(struct trainer *t, struct exchange *x, enum tensor_kind kind, struct piece *piece)
{
    struct error err;
    piece->data = tensor_1d(NULL, data_format(&t->data, kind), piece->kept.count);
    piece->data.data = malloc(tensor_bytes(piece->data) + 1);
    enum error_code e = piece->data.data ? OK : fail(&err, ERR_MEMORY, "no memory to collect %s", piece->spec->name);
    if (!e)
        e = message_wait(t->comm, message_receive(x, piece->rank, piece->data.data, tensor_bytes(piece->data)), &err);
    if (e) comm_give_up(t->comm, &err);
}

static void send_own(struct trainer *t, struct exchange *x, const struct parameter *p, enum tensor_kind kind)
{
    struct error err;
    struct tensor own = tensor_none;
    struct interval kept;
    enum error_code e = collect_own(t, p, kind, &kept, &own, &err);
    if (!e) e = message_wait(t->comm, message_send(x, 0, own.data, tensor_bytes(own)), &err);
    if (e) comm_give_up(t->comm, &err);
    free(own.data);
}

static void show(struct trainer *t, struct exchange *x, int index, int tile, enum tensor_kind kind, struct piece *piece,
                 void (*visit)(void *, const struct piece *), void *context)
{
    struct error err;
    const struct param_spec spec = data_spec(&t->data, piece->spec, kind);
    const bool whole = data_keeps_whole(&t->data, kind);
    const struct layout layout =
        whole ? layout_whole(spec.ndim, spec.dim) : plan_tile_layout(&t->plan, piece->rank, piece->spec, tile);
    piece->layout = &layout;
    enum error_code e = find_piece(t, index, tile, kind, piece, &err);
    if (!e && piece->rank == 0)
        e = collect_own(t, parameter_find(&t->parameters, index) + tile, kind, &piece->kept, &piece->data, &err);
    if (e) comm_give_up(t->comm, &err);
    if (piece->rank != 0) receive(t, x, kind, piece);
    visit(context, piece);
    free(piece->data.data);
}

void collect_pieces(struct trainer *t, int index, enum tensor_kind kind, void (*visit)(void *, const struct piece *),
                    void *context)
{
    const struct param_spec spec = trainer_spec(t, index);
    const struct parameter *own = parameter_find(&t->parameters, index);
    const int tiles = tiles_of(&t->plan.data, &spec);
    if (data_spec(&t->data, &spec, kind).ndim == 0) return;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    /* Every other device sends what it holds, and rank 0 receives it in order of ranks. */
    for (int tile = 0; tile < tiles && t->comm->rank != 0 && own; tile++) send_own(t, &x, own + tile, kind);
    for (int i = 0; i < t->comm->size * tiles && t->comm->rank == 0; i++) {
        struct piece piece = { .rank = i / tiles, .spec = &spec };
        if (plan_holds(&t->plan, &t->schedule, piece.rank, &spec, &piece.first))
            show(t, &x, index, i % tiles, kind, &piece, visit, context);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

struct paste { struct tensor whole; int replica; };

static void paste_piece(void *context, const struct piece *p)
{
    const struct paste *to = context;
    /* The first of equal copies is enough. */
    if (!p->first || !p->keeps_first || p->replica != to->replica) return;
    layout_paste_within(p->layout, p->kept.first, p->kept.count, to->whole.data, p->data.data,
                        dtype_size(to->whole.dtype));
}

void collect_replica(struct trainer *t, int replica, int index, enum tensor_kind kind, struct tensor whole)
{
    struct paste to = { whole, replica };
    collect_pieces(t, index, kind, paste_piece, &to);
}

void collect_whole(struct trainer *t, int index, enum tensor_kind kind, struct tensor whole)
{
    collect_replica(t, 0, index, kind, whole);
}

/* Without memory for the tensor the job ends, as in collect_pieces. */
void collect_model(struct trainer *t, int index, struct tensor whole)
{
    struct tensor anchor = whole;
    struct error err;
    if (!t->data.shards.apart) {
        collect_whole(t, index, KIND_WEIGHT, whole);
        return;
    }
    anchor.dtype = data_format(&t->data, KIND_ANCHOR);
    anchor.data = t->comm->rank == 0 ? malloc(tensor_bytes(anchor) + 1) : NULL;
    if (t->comm->rank == 0 && anchor.data == NULL)
        comm_give_up(t->comm, (fail(&err, ERR_MEMORY, "no memory to collect a tensor of the model"), &err));
    collect_whole(t, index, KIND_ANCHOR, anchor);
    if (anchor.data) tensor_convert(whole, anchor);
    free(anchor.data);
}

/* ---- the other way ----------------------------------------------------------------------------------------------- */

void collect_keep(struct trainer *t, const struct parameter *p, enum tensor_kind kind, struct tensor piece)
{
    const struct unit *u = unit_with(t, p);
    if (data_keeps_whole(&t->data, kind)) {
        const struct tensor state = data_whole_state(&t->data, p, (int)(kind - KIND_STATE));
        device_copy(t->comm->device, state.data, piece.data, tensor_bytes(state));
        return;
    }
    const struct interval part = data_kept(&u->over->shards, u, kind), own = unit_owned(u, part, p);
    unit_put(t->comm->device, u, part, data_kept_tensor(&t->data, u, kind).data, p,
             (char *)piece.data + (size_t)own.first * dtype_size(piece.dtype), piece.dtype);
}

enum error_code collect_keep_weights(struct trainer *t, const struct parameter *p, struct tensor piece,
                                     struct error *err)
{
    struct tensor rounded = tensor_1d(NULL, t->plan.dtype, tensor_count(piece));
    rounded.data = malloc(tensor_bytes(rounded) + 1);
    if (rounded.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", p->spec.name);
    tensor_convert(rounded, piece);
    if (data_has_masters(&t->data)) collect_keep(t, p, KIND_MASTER, piece);
    collect_keep(t, p, KIND_WEIGHT, rounded);
    free(rounded.data);
    return OK;
}
