/* encoders_kept.c -- brings what devices keep of encoders to rank 0, and stores what a file or a run gives.
 * model/checkpoint/ saves and reads encoders, and verify/reference/encoders.c compares them.  Errors: ERR_MEMORY, and
 * those of a visit. */
#include "emulated_devices/model/trainer.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>
#include <string.h>

/* A device's part of a unit's row beside the encoder's parameters, which lie one after another. */
struct piece_copy {
    struct data_parallel *data;
    char *kept;                         /* numbers of the part of the row */
    int64_t first;                      /* row of its first number */
    char *whole;                        /* [encoder_counts] */
    uint8_t *has;                       /* [encoder_counts]; NULL: numbers go from the whole to what is kept */
    size_t size;                        /* bytes of a number */
};

static void copy_portion(void *context, struct portion portion)
{
    const struct piece_copy *const c = context;
    int64_t at = portion.piece;
    for (const struct parameter *p = c->data->parameters->all; p < portion.parameter; p++)
        at += layout_count(&p->layout);
    char *const own = c->kept + (size_t)(portion.row - c->first) * c->size,
         *const all = c->whole + (size_t)at * c->size;
    memcpy(c->has ? all : own, c->has ? own : all, (size_t)portion.length * c->size);
    if (c->has) memset(c->has + at, 1, (size_t)portion.length);
}

/* The one unit with parameters. */
static const struct unit *unit_of_encoder(const struct data_parallel *data)
{
    int unit = 0;
    while (unit < data->units - 1 && data->unit[unit].count == 0) unit++;
    return &data->unit[unit];
}

static void read_kept(struct trainer *trainer, int m, enum tensor_kind kind, struct tensor whole, uint8_t *has)
{
    struct data_parallel *const d = &trainer->encoders.of[m].data;
    const struct unit *const unit = unit_of_encoder(d);
    const struct interval own = data_kept(&d->shards, unit, kind);
    if (unit->frozen && !kind_is_of_weights(kind)) {
        memset(has, 1, (size_t)tensor_count(whole));
        return;
    }
    struct views v = views_of(trainer->device);
    struct piece_copy copy = { d, view_read(&v, data_kept_tensor(d, unit, kind)).data, own.first, whole.data, has,
                               dtype_size(whole.dtype) };
    unit_each_stretch(unit, own, copy_portion, &copy);
    views_end(&v);
}

/* The shards and the row of an encoder on any device that has it, without its numbers. */
static enum error_code lay_out_elsewhere(const struct trainer *trainer, int m, int rank, struct shards *shards,
                                         struct parameter all[ENCODER_PARAMS], struct unit *unit, struct error *err)
{
    const struct plan *const plan = &trainer->plan;
    const struct data_request request = plan_encoder_data(plan);
    int devices = 0, place = 0;
    for (int d = 0; d < plan->mesh.devices; d++) {
        if (d == rank) place = devices;
        devices += encoder_is_on(&plan->encoders, plan->mesh.devices, m, d);
    }
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        all[p] = (struct parameter){ .spec = encoder_spec(&modalities[m], plan->model.D, p), .index = (int)p };
        all[p].layout = layout_whole(all[p].spec.ndim, all[p].spec.dim);
    }
    const enum error_code e = data_shards(shards, &request, devices, place, err);
    if (!e) unit_lay_out(unit, all, ENCODER_PARAMS, shards, trainer->data.scheme->rows);
    return e;
}

enum error_code encoder_kept(const struct trainer *trainer, int m, int rank, enum encoder_param param,
                             enum tensor_kind kind, struct interval *kept, struct error *err)
{
    const struct plan *const plan = &trainer->plan;
    struct parameter all[ENCODER_PARAMS];
    struct shards shards;
    struct unit unit;
    *kept = (struct interval){ 0 };
    if (!mesh_has(&plan->mesh, rank) || !encoder_is_on(&plan->encoders, plan->mesh.devices, m, rank)) return OK;
    const enum error_code e = lay_out_elsewhere(trainer, m, rank, &shards, all, &unit, err);
    if (!e) *kept = unit_owned(&unit, data_kept(&shards, &unit, kind), &all[param]);
    return e;
}

void encoder_take(struct trainer *trainer, int m, enum encoder_param param, enum tensor_kind kind, struct tensor own)
{
    struct data_parallel *const d = &trainer->encoders.of[m].data;
    const struct unit *const unit = unit_of_encoder(d);
    if (unit->frozen && !kind_is_of_weights(kind)) memset(own.data, 0, tensor_bytes(own));
    else
        unit_take(trainer->device, unit, data_kept(&d->shards, unit, kind), data_kept_tensor(d, unit, kind).data,
                  &d->parameters->all[param], own.data, own.dtype);
}

void encoder_put(struct trainer *trainer, int m, enum encoder_param param, enum tensor_kind kind, struct tensor own)
{
    struct data_parallel *const d = &trainer->encoders.of[m].data;
    const struct unit *const unit = unit_of_encoder(d);
    if (unit->frozen && !kind_is_of_weights(kind)) return;
    unit_put(trainer->device, unit, data_kept(&d->shards, unit, kind), data_kept_tensor(d, unit, kind).data,
             &d->parameters->all[param], own.data, own.dtype);
}

static struct tensor encoder_numbers(const struct trainer *trainer, int m, enum tensor_kind kind, void *data)
{
    /* Formats are the plan's, so a device without the encoder knows them, too. */
    struct data_parallel format = { .device = trainer->device, .request = { .narrow_gradients = false },
                                    .optimizer = trainer->plan.optimizer, .hyper = &trainer->plan.hyper };
    return tensor_1d(data, data_format(&format, kind), encoder_counts(&modalities[m], trainer->plan.model.D));
}

enum error_code encoders_bring(struct trainer *trainer, int m, enum tensor_kind kind,
                               enum error_code (*visit)(void *context, const struct encoder_piece *, struct error *),
                               void *context, struct error *err)
{
    struct comm *const comm = trainer->comm;
    struct tensor whole = encoder_numbers(trainer, m, kind, NULL);
    const size_t numbers = tensor_bytes(whole), bytes = numbers + (size_t)tensor_count(whole);
    const bool first = comm->rank == 0;
    char *const own = calloc(1, bytes), *const all = first ? malloc(bytes * (size_t)comm->size) : NULL;
    enum error_code e = own && (all || !first) ? OK : fail(err, ERR_MEMORY, "no memory to collect encoders");
    /* All devices know whether memory was there before the first of them sends. */
    e = comm_agree(comm, e, err);
    whole.data = own;
    if (!e && trainer->encoders.of[m].here) read_kept(trainer, m, kind, whole, (uint8_t *)own + numbers);
    if (!e) e = comm_bring(comm, own, bytes, all, err);
    for (int d = 0; d < comm->size && first && !e; d++) {
        char *const at = all + (size_t)d * bytes;
        whole.data = at;
        const struct encoder_piece piece = { d, (const uint8_t *)at + numbers, whole };
        if (encoder_is_on(&trainer->plan.encoders, comm->size, m, d)) e = visit(context, &piece, err);
    }
    free(own), free(all);
    return comm_agree(comm, e, err);
}

static enum error_code take_piece(void *context, const struct encoder_piece *piece, struct error *err)
{
    const struct tensor *const whole = context;
    const size_t size = dtype_size(whole->dtype);
    (void)err;
    for (int64_t i = 0; i < tensor_count(*whole); i++)
        if (piece->has[i])
            memcpy((char *)whole->data + (size_t)i * size, (const char *)piece->numbers.data + (size_t)i * size, size);
    return OK;
}

enum error_code encoders_collect(struct trainer *trainer, int m, enum tensor_kind kind, struct tensor whole,
                                 struct error *err)
{
    return encoders_bring(trainer, m, kind, take_piece, &whole, err);
}

static enum error_code keep_one(struct trainer *trainer, int m, enum tensor_kind kind, struct tensor whole,
                                struct error *err)
{
    struct data_parallel *const d = &trainer->encoders.of[m].data;
    const struct unit *const unit = unit_of_encoder(d);
    const struct interval own = data_kept(&d->shards, unit, kind);
    if (unit->frozen && !kind_is_of_weights(kind)) return OK;
    const struct tensor kept = data_kept_tensor(d, unit, kind);
    const size_t bytes = tensor_bytes(kept);
    /* The padding of the row stays zero. */
    char *const room = calloc(1, bytes + 1);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory to store encoders");
    struct piece_copy copy = { d, room, own.first, whole.data, NULL, dtype_size(whole.dtype) };
    unit_each_stretch(unit, own, copy_portion, &copy);
    device_copy(trainer->device, kept.data, room, bytes);
    free(room);
    return OK;
}

enum error_code encoders_keep(struct trainer *trainer, int m, enum tensor_kind kind, struct tensor whole,
                              struct error *err)
{
    if (!trainer->encoders.of[m].here) return OK;
    enum error_code e = keep_one(trainer, m, kind, whole, err);
    if (e || kind != KIND_MASTER) return e;
    struct tensor rounded = encoder_numbers(trainer, m, KIND_WEIGHT, NULL);
    rounded.data = malloc(tensor_bytes(rounded));
    if (rounded.data == NULL) return fail(err, ERR_MEMORY, "no memory to round encoders");
    tensor_convert(rounded, whole);
    e = keep_one(trainer, m, KIND_WEIGHT, rounded, err);
    free(rounded.data);
    return e;
}
