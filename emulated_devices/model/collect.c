/* collect.c -- brings the pieces of a tensor from all devices to rank 0, and puts read tensors into shards.
 * model/checkpoint, verify and run/sample.c call.  All ranks must call collect_pieces and what calls it; after a
 * failure there the job ends.  collect_own and collect_keep_weights are local, and report ERR_MEMORY. */
#include "emulated_devices/model/collect.h"
#include "emulated_devices/model/collection/holding.h"
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>
#include <string.h>

/* ---- what this device keeps -------------------------------------------------------------------------------------- */

static const struct unit *unit_with(const struct trainer *trainer, const struct parameter *parameter)
{
    return &trainer->data.unit[data_unit_of(&trainer->plan.model, &trainer->plan.data, parameter)];
}

enum error_code collect_own(const struct trainer *trainer, const struct parameter *parameter, enum tensor_kind kind,
                            struct interval *kept, struct tensor *own, struct error *err)
{
    const struct unit *u = unit_with(trainer, parameter);
    const struct interval part = data_kept(&u->over->shards, u, kind);
    const struct tensor whole =
        data_keeps_whole(&trainer->data, kind) ? data_whole_state(&trainer->data, parameter, (int)(kind - KIND_STATE))
            : tensor_none;
    *kept = data_keeps_whole(&trainer->data, kind) ? (struct interval){ 0, tensor_count(whole) }
        : unit_owned(u, part, parameter);
    *own = tensor_1d(NULL, data_format(&trainer->data, kind), kept->count);
    own->data = malloc(tensor_bytes(*own) + 1);
    if (own->data == NULL) return fail(err, ERR_MEMORY, "no memory to collect %s", parameter->spec.name);
    if (u->frozen && !kind_is_of_weights(kind)) memset(own->data, 0, tensor_bytes(*own));
    else if (!data_keeps_whole(&trainer->data, kind))
        unit_take(trainer->comm->device, u, part, data_kept_tensor(&trainer->data, u, kind).data, parameter,
                  own->data, own->dtype);
    else if (kept->count > 0) device_copy(trainer->comm->device, own->data, whole.data, tensor_bytes(whole));
    return OK;
}

/* ---- to rank 0 --------------------------------------------------------------------------------------------------- */

/* The sender does not learn of a failure here, so a failure ends the job. */
static void collect_receive(struct trainer *trainer, struct exchange *exchange, enum tensor_kind kind,
                            struct piece *piece)
{
    struct error err;
    piece->data = tensor_1d(NULL, data_format(&trainer->data, kind), piece->kept.count);
    piece->data.data = malloc(tensor_bytes(piece->data) + 1);
    enum error_code e = piece->data.data ? OK : fail(&err, ERR_MEMORY, "no memory to collect %s", piece->spec->name);
    if (!e)
        e = message_wait(trainer->comm, message_receive(exchange, piece->rank, piece->data.data,
                                                        tensor_bytes(piece->data)), &err);
    if (e) comm_give_up(trainer->comm, &err);
}

static void send_own(struct trainer *trainer, struct exchange *exchange, const struct parameter *parameter,
                     enum tensor_kind kind)
{
    struct error err;
    struct tensor own = tensor_none;
    struct interval kept;
    enum error_code e = collect_own(trainer, parameter, kind, &kept, &own, &err);
    if (!e) e = message_wait(trainer->comm, message_send(exchange, 0, own.data, tensor_bytes(own)), &err);
    if (e) comm_give_up(trainer->comm, &err);
    free(own.data);
}

static void collect_show(struct trainer *trainer, struct exchange *exchange, int index, int tile, enum tensor_kind kind,
                         struct piece *piece, void (*visit)(void *, const struct piece *), void *context)
{
    struct error err;
    struct holding held;
    enum error_code e = holding_of(trainer, piece->rank, index, tile, kind, &held, &err);
    piece->layout = &held.layout, piece->kept = held.kept, piece->keeps_first = held.keeps_first,
        piece->replica = held.replica;
    if (!e && piece->rank == 0)
        e = collect_own(trainer, parameter_find(&trainer->parameters, index) + tile, kind, &piece->kept,
                        &piece->data, &err);
    if (e) comm_give_up(trainer->comm, &err);
    if (piece->rank != 0) collect_receive(trainer, exchange, kind, piece);
    visit(context, piece);
    free(piece->data.data);
}

/* Bring the pieces that one section has, or a plan without sections. */
static void collect_section(struct trainer *trainer, struct exchange *exchange, const struct param_spec *spec,
                            int index, enum tensor_kind kind, void (*visit)(void *, const struct piece *),
                            void *context)
{
    const struct parameter *own = trainer_takes_part(trainer) ? parameter_find(&trainer->parameters, index) : NULL;
    const int tiles = tiles_of(&trainer->plan.data, spec);
    /* Every other device sends what it holds, and rank 0 receives it in order of ranks. */
    for (int tile = 0; tile < tiles && trainer->comm->rank != 0 && own; tile++)
        send_own(trainer, exchange, own + tile, kind);
    for (int i = 0; i < trainer->comm->size * tiles && trainer->comm->rank == 0; i++) {
        struct piece piece = { .rank = i / tiles, .spec = spec };
        if (holding_exists(trainer, piece.rank, spec, &piece.first))
            collect_show(trainer, exchange, index, i % tiles, kind, &piece, visit, context);
    }
}

void collect_pieces(struct trainer *trainer, int index, enum tensor_kind kind,
                    void (*visit)(void *, const struct piece *), void *context)
{
    const struct param_spec spec = trainer_spec(trainer, index);
    struct trainer *section;
    if (data_spec(&trainer->data, &spec, kind).ndim == 0) return;
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    for (int i = 0; (section = trainer_section(trainer, i)) != NULL; i++)
        collect_section(section, &x, &spec, index, kind, visit, context);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

struct paste { struct tensor whole; int replica; };

static void paste_piece(void *context, const struct piece *piece)
{
    const struct paste *to = context;
    /* The first of equal copies is enough. */
    if (!piece->first || !piece->keeps_first || piece->replica != to->replica) return;
    layout_paste_within(piece->layout, piece->kept.first, piece->kept.count, to->whole.data, piece->data.data,
                        dtype_size(to->whole.dtype));
}

void collect_replica(struct trainer *trainer, int replica, int index, enum tensor_kind kind, struct tensor whole)
{
    struct paste to = { whole, replica };
    collect_pieces(trainer, index, kind, paste_piece, &to);
}

void collect_whole(struct trainer *trainer, int index, enum tensor_kind kind, struct tensor whole)
{
    collect_replica(trainer, 0, index, kind, whole);
}

/* Without memory for the tensor the job ends, as in collect_pieces. */
void collect_model(struct trainer *trainer, int index, struct tensor whole)
{
    struct tensor anchor = whole;
    struct error err;
    if (!trainer->data.shards.apart) {
        collect_whole(trainer, index, KIND_WEIGHT, whole);
        return;
    }
    anchor.dtype = data_format(&trainer->data, KIND_ANCHOR);
    anchor.data = trainer->comm->rank == 0 ? malloc(tensor_bytes(anchor) + 1) : NULL;
    if (trainer->comm->rank == 0 && anchor.data == NULL)
        comm_give_up(trainer->comm, (fail(&err, ERR_MEMORY, "no memory to collect a tensor of the model"), &err));
    collect_whole(trainer, index, KIND_ANCHOR, anchor);
    if (anchor.data) tensor_convert(whole, anchor);
    free(anchor.data);
}

/* ---- the other way ----------------------------------------------------------------------------------------------- */

void collect_put_own(struct trainer *trainer, const struct parameter *parameter, enum tensor_kind kind,
                     struct tensor own)
{
    const struct unit *u = unit_with(trainer, parameter);
    unit_put(trainer->comm->device, u, data_kept(&u->over->shards, u, kind),
             data_kept_tensor(&trainer->data, u, kind).data, parameter, own.data, own.dtype);
}

void collect_keep(struct trainer *trainer, const struct parameter *parameter, enum tensor_kind kind,
                  struct tensor piece)
{
    const struct unit *u = unit_with(trainer, parameter);
    if (u->frozen && !kind_is_of_weights(kind)) return;
    if (data_keeps_whole(&trainer->data, kind)) {
        const struct tensor state = data_whole_state(&trainer->data, parameter, (int)(kind - KIND_STATE));
        device_copy(trainer->comm->device, state.data, piece.data, tensor_bytes(state));
        return;
    }
    const struct interval part = data_kept(&u->over->shards, u, kind), own = unit_owned(u, part, parameter);
    unit_put(trainer->comm->device, u, part, data_kept_tensor(&trainer->data, u, kind).data, parameter,
             (char *)piece.data + (size_t)own.first * dtype_size(piece.dtype), piece.dtype);
}

enum error_code collect_keep_weights(struct trainer *trainer, const struct parameter *parameter, struct tensor piece,
                                     struct error *err)
{
    struct tensor rounded = tensor_1d(NULL, trainer->plan.dtype, tensor_count(piece));
    rounded.data = malloc(tensor_bytes(rounded) + 1);
    if (rounded.data == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", parameter->spec.name);
    tensor_convert(rounded, piece);
    if (data_has_masters(&trainer->data)) collect_keep(trainer, parameter, KIND_MASTER, piece);
    collect_keep(trainer, parameter, KIND_WEIGHT, rounded);
    free(rounded.data);
    return OK;
}
