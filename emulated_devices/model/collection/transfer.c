/* transfer.c -- copies a device's numbers out of a trainer, sends what moves, and puts numbers into a trainer.
 * run/elastic/ calls.  Errors are agreed on by all devices in transfer_run; carried_take and carried_put are local. */
#include "emulated_devices/model/collection/transfer.h"
#include "emulated_devices/comm/strided_transfer.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/model/collection/holding.h"
#include "emulated_devices/model/collection/progress.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>
#include <string.h>

/* ---- out of a trainer -------------------------------------------------------------------------------------------- */

static enum error_code carried_open(struct carried *carried, int count, struct error *err)
{
    *carried = (struct carried){ .count = count, .boxes = calloc((size_t)count + 1, sizeof *carried->boxes),
                                 .data = calloc((size_t)count + 1, sizeof *carried->data) };
    return carried->boxes && carried->data ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d tensors", count);
}

static enum error_code make_room(char **data, const struct named_tensor *tensor, const struct boxes *boxes,
                                 struct error *err)
{
    *data = calloc((size_t)boxes_total(boxes, tensor->ndim) * dtype_size(tensor->format) + 1, 1);
    return *data ? OK : fail(err, ERR_MEMORY, "no memory to move %s", tensor->name);
}

static void take_job(const struct trainer *trainer, const struct named_tensor *tensor, char *data)
{
    double number[PROGRESS_NUMBERS];
    progress_take(trainer, number);
    if (tensor->job == JOB_PROGRESS) memcpy(data, number, sizeof number);
    else memcpy(data, trainer->routers.bias, (size_t)tensor->dim[0] * sizeof(double));
}

/* The tensor's pieces in the order of collection_has: section by section, tile by tile. */
static enum error_code take_pieces(struct trainer *trainer, const struct named_tensor *tensor, char *to,
                                   struct error *err)
{
    struct trainer *section;
    enum error_code e = OK;
    for (int s = 0; (section = trainer_section(trainer, s)) != NULL; s++) {
        const struct parameter *const own = parameter_find(&section->parameters, tensor->index);
        const int tiles = own && !data_keeps_whole(&section->data, tensor->kind)
            ? tiles_of(&section->plan.data, &own->spec) : own != NULL;
        for (int tile = 0; tile < tiles && !e; tile++) {
            struct interval kept;
            struct tensor piece = tensor_none;
            e = collect_own(section, own + tile, tensor->kind, &kept, &piece, err);
            if (!e) memcpy(to, piece.data, tensor_bytes(piece)), to += tensor_bytes(piece);
            free(piece.data);
        }
    }
    return e;
}

enum error_code collection_take(const struct collection *collection, int tensor, int rank, struct trainer *own,
                                struct boxes *boxes, char **data, struct error *err)
{
    const struct named_tensor *const t = &collection->tensor[tensor];
    enum error_code e = collection_has(collection, tensor, rank, boxes, err);
    if (!e) e = make_room(data, t, boxes, err);
    if (e || boxes->count == 0) return e;
    if (t->job) take_job(own, t, *data);
    else if (t->encoder)
        encoder_take(own, t->encoder - 1, (enum encoder_param)t->index, t->kind,
                     tensor_1d(*data, t->format, boxes_total(boxes, t->ndim)));
    else e = take_pieces(own, t, *data, err);
    return e;
}

enum error_code carried_take(struct carried *carried, const struct collection *collection, int rank,
                             struct trainer *own, struct error *err)
{
    enum error_code e = carried_open(carried, collection->count, err);
    for (int t = 0; t < collection->count && !e && own; t++)
        e = collection_take(collection, t, rank, own, &carried->boxes[t], &carried->data[t], err);
    return e;
}

void carried_free(struct carried *carried)
{
    for (int t = 0; t < carried->count; t++) {
        if (carried->boxes) boxes_free(&carried->boxes[t]);
        if (carried->data) free(carried->data[t]);
    }
    free(carried->boxes), free(carried->data);
    *carried = (struct carried){ 0 };
}

/* ---- from device to device --------------------------------------------------------------------------------------- */

/* This device sends these boxes to another one, or gets them from there. */
struct transfer_side {
    int count;                          /* boxes; 0: nothing moves */
    struct strided_pair *pair;          /* [count] the box at the sender and at the receiver */
    char **memory;                      /* [count] the tensor of each, on this device */
    char *packed;
    struct strided_transfer way;
};

/* This holds one device's messages of a transfer. */
struct transfer {
    struct group *everyone;
    const struct moves *moves;          /* of all devices */
    const struct collection *from, *to; /* the two plans' */
    const struct carried *old;          /* this device's numbers before */
    struct carried *fresh;              /* and afterwards */
    int *source;                        /* [tensors of `to`] the same tensor in `from` */
    struct transfer_side *out, *in;     /* [ranks] */
};

static enum error_code open_transfer(struct transfer *transfer, struct error *err)
{
    const size_t ranks = (size_t)transfer->moves->ranks, tensors = (size_t)transfer->to->count;
    transfer->source = calloc(tensors + 1, sizeof *transfer->source);
    transfer->out = calloc(2 * ranks, sizeof *transfer->out);
    if (!transfer->source || !transfer->out)
        return fail(err, ERR_MEMORY, "no memory for the messages of %zu devices", ranks);
    transfer->in = transfer->out + ranks;
    for (int t = 0; t < transfer->to->count; t++)
        transfer->source[t] = collection_find(transfer->from, transfer->to->tensor[t].name);
    return OK;
}

static void close_transfer(struct transfer *transfer)
{
    for (int r = 0; transfer->out && r < 2 * transfer->moves->ranks; r++) {
        struct transfer_side *const side = &transfer->out[r];
        free(side->pair), free(side->memory), free(side->packed), free(side->way.message);
    }
    free(transfer->source), free(transfer->out);
}

/* Room for what this device wants, filled with what stays. */
static enum error_code fill_own(const struct transfer *transfer, struct error *err)
{
    struct carried *const fresh = transfer->fresh;
    enum error_code e = carried_open(fresh, transfer->to->count, err);
    for (int t = 0; t < transfer->to->count && !e; t++) {
        const struct named_tensor *const tensor = &transfer->to->tensor[t];
        const int s = transfer->source[t];
        const struct boxes *const had = &transfer->old->boxes[s];
        e = collection_wants(transfer->to, t, transfer->everyone->rank, &fresh->boxes[t], err);
        if (!e) e = make_room(&fresh->data[t], tensor, &fresh->boxes[t], err);
        for (int b = 0; b < had->count && !e; b++)
            boxes_copy(fresh->data[t], &fresh->boxes[t], transfer->old->data[s], had, &had->at[b], tensor->ndim,
                       dtype_size(tensor->format));
    }
    return e;
}

/* Where both devices have a tensor's boxes; the other device's follow from its plan. */
static enum error_code boxes_of_both(const struct transfer *transfer, int tensor, int from, int to,
                                     struct boxes *has, struct boxes *wants, struct error *err)
{
    boxes_free(has), boxes_free(wants);
    enum error_code e = collection_has(transfer->from, transfer->source[tensor], from, has, err);
    return e ? e : collection_wants(transfer->to, tensor, to, wants, err);
}

/* List the boxes that go from one device to another, in the order of the moves; this device is one of the two. */
static enum error_code list_boxes(const struct transfer *transfer, struct transfer_side *side, int from, int to,
                                  struct error *err)
{
    const struct moves *const moves = transfer->moves;
    const bool sends = from == transfer->everyone->rank;
    struct boxes has = { 0 }, wants = { 0 };
    enum error_code e = OK;
    for (int i = 0, tensor = -1; i < moves->count && !e; i++) {
        const struct move *const m = &moves->at[i];
        if (m->from != from || m->to != to) continue;
        const struct named_tensor *const t = &transfer->to->tensor[m->tensor];
        const size_t size = dtype_size(t->format);
        if (m->tensor != tensor) e = boxes_of_both(transfer, m->tensor, from, to, &has, &wants, err);
        tensor = m->tensor;
        side->memory[side->count] = sends ? transfer->old->data[transfer->source[tensor]]
                                          : transfer->fresh->data[tensor];
        struct strided_pair *const pair = &side->pair[side->count++];
        if (!e && !(boxes_form(&has, &m->box, t->ndim, size, &pair->from)
                    && boxes_form(&wants, &m->box, t->ndim, size, &pair->to)))
            e = fail(err, ERR_CHECK, "%s: a box that moves is in no box of device %d and of device %d", t->name, from,
                     to);
    }
    boxes_free(&has), boxes_free(&wants);
    return e;
}

/* Both devices of a side list the same boxes, and so choose the same way. */
static enum error_code make_side(struct transfer *transfer, struct transfer_side *side, int from, int to,
                                 struct error *err)
{
    const bool sends = from == transfer->everyone->rank;
    int count = 0;
    for (int i = 0; i < transfer->moves->count; i++)
        count += transfer->moves->at[i].from == from && transfer->moves->at[i].to == to;
    if (count == 0) return OK;
    side->pair = calloc((size_t)count, sizeof *side->pair), side->memory = calloc((size_t)count, sizeof *side->memory);
    if (!side->pair || !side->memory) return fail(err, ERR_MEMORY, "no memory for a list of %d boxes", count);
    enum error_code e = list_boxes(transfer, side, from, to, err);
    if (!e) e = strided_open(&side->way, transfer->everyone, sends ? to : from, sends ? SENDS_STRIDED
                             : RECEIVES_STRIDED, side->pair, side->count, err);
    if (e) return e;
    const uint64_t packed = strided_packed(&side->way);
    side->way.host = true;
    side->packed = packed ? malloc(packed) : NULL;
    return packed == 0 || side->packed ? OK
        : fail(err, ERR_MEMORY, "no memory for a message of %llu bytes", (unsigned long long)packed);
}

static enum error_code make_messages(struct transfer *transfer, struct error *err)
{
    const int self = transfer->everyone->rank;
    enum error_code e = OK;
    for (int r = 0; r < transfer->moves->ranks && !e; r++) {
        e = make_side(transfer, &transfer->out[r], self, r, err);
        if (!e) e = make_side(transfer, &transfer->in[r], r, self, err);
    }
    return e;
}

static enum error_code transfer_send_all(const struct transfer *transfer, struct error *err)
{
    struct exchange x = exchange_begin(transfer->everyone, POINT_TO_POINT);
    struct error unread;
    enum error_code e = OK;
    const int ranks = transfer->moves->ranks;
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < ranks; r++) {
            struct transfer_side *const side = n == 0 ? &transfer->in[r] : &transfer->out[r];
            if (side->count > 0) strided_start(&side->way, &x, side->memory, side->packed);
        }
    /* Every message is waited for, also after an error: the carrier uses its buffer until then. */
    for (int r = 0; r < ranks; r++) {
        const enum error_code in =
            transfer->in[r].count > 0 ? strided_wait(&transfer->in[r].way, e ? &unread : err) : OK;
        if (!e) e = in;
        const enum error_code out =
            transfer->out[r].count > 0 ? strided_wait(&transfer->out[r].way, e ? &unread : err) : OK;
        if (!e) e = out;
    }
    return e;
}

/* The ways of this device's sides say which messages it sends. */
static struct traffic foresee(const struct transfer *transfer, struct transferred *did)
{
    struct traffic t = { 0 };
    for (int r = 0; r < transfer->moves->ranks; r++) {
        const struct transfer_side *const out = &transfer->out[r];
        if (out->count == 0) continue;
        strided_enter(&t, group_level(transfer->everyone, r), out->pair, out->count, out->way.choice);
        did->messages += out->way.choice.messages, did->pairs[out->way.choice.way]++;
    }
    return t;
}

/* The ledger's count of this device since `before`, against the moves and their ways. */
static enum error_code check_moved(const struct transfer *transfer, const struct traffic *before,
                                   struct transferred *did, struct error *err)
{
    const struct group *const everyone = transfer->everyone;
    const struct traffic *const now = &everyone->comm->counted.of[everyone->kind].of[POINT_TO_POINT];
    const struct traffic foreseen = foresee(transfer, did);
    const struct moved *const own = &transfer->moves->of[everyone->rank];
    const uint64_t sent = now->bytes_sent - before->bytes_sent, received = now->bytes_received - before->bytes_received;
    if (sent != own->sent || received != own->received)
        return fail(err, ERR_CHECK, "device %d has sent %llu and received %llu bytes of the job's state, not %llu and "
                    "%llu", everyone->rank, (unsigned long long)sent, (unsigned long long)received,
                    (unsigned long long)own->sent, (unsigned long long)own->received);
    for (int l = 0; l < CLUSTER_LEVELS; l++) {
        const uint64_t messages = now->level[l].messages - before->level[l].messages,
                       bytes = now->level[l].bytes - before->level[l].bytes;
        if (messages != foreseen.level[l].messages || bytes != foreseen.level[l].bytes)
            return fail(err, ERR_CHECK, "device %d has sent %llu messages with %llu bytes over links of level %d, not "
                        "%llu with %llu", everyone->rank, (unsigned long long)messages, (unsigned long long)bytes, l,
                        (unsigned long long)foreseen.level[l].messages, (unsigned long long)foreseen.level[l].bytes);
    }
    return OK;
}

/* Each device learns what all have sent. */
static enum error_code transfer_add_up(struct comm *comm, struct transferred *did, struct error *err)
{
    struct transferred *const all = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL, sum = { 0 };
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, did, sizeof *did, all, err);
    for (int r = 0; all && r < comm->size && !e; r++) {
        sum.messages += all[r].messages;
        for (int way = 0; way < STRIDED_WAYS; way++) sum.pairs[way] += all[r].pairs[way];
    }
    free(all);
    if (!e) e = comm_tell(comm, &sum, sizeof sum, err);
    *did = sum;
    return e;
}

enum error_code transfer_run(struct group *everyone, const struct moves *moves, const struct collection *from,
                             const struct collection *to, const struct carried *old, struct carried *fresh,
                             struct transferred *did, struct error *err)
{
    struct transfer t = { .everyone = everyone, .moves = moves, .from = from, .to = to, .old = old, .fresh = fresh };
    const struct traffic before = everyone->comm->counted.of[everyone->kind].of[POINT_TO_POINT];
    *fresh = (struct carried){ 0 }, *did = (struct transferred){ 0 };
    enum error_code e = open_transfer(&t, err);
    if (!e) e = fill_own(&t, err);
    if (!e) e = make_messages(&t, err);
    e = group_agree(everyone, e, err);
    if (!e) e = transfer_send_all(&t, err);
    if (!e) e = check_moved(&t, &before, did, err);
    close_transfer(&t);
    e = group_agree(everyone, e, err);
    return e ? e : transfer_add_up(everyone->comm, did, err);
}

/* ---- into a trainer ---------------------------------------------------------------------------------------------- */

static void put_job(struct trainer *trainer, const struct named_tensor *tensor, const char *data)
{
    double number[PROGRESS_NUMBERS];
    if (tensor->job == JOB_ROUTER_BIAS) {
        memcpy(trainer->routers.bias, data, (size_t)tensor->dim[0] * sizeof(double));
        return;
    }
    memcpy(number, data, sizeof number);
    progress_put(trainer, number);
}

/* Weights of which some are this device's masters, rounded, and the others were carried. */
static void join_rounded(struct tensor whole, struct interval held, struct interval masters, struct tensor piece,
                         const char **from)
{
    const size_t size = dtype_size(whole.dtype);
    const struct interval part[2] = {
        { held.first, masters.count ? masters.first - held.first : held.count },
        { interval_end(masters), masters.count ? interval_end(held) - interval_end(masters) : 0 },
    };
    tensor_convert(tensor_1d((char *)whole.data + (size_t)masters.first * size, whole.dtype, masters.count), piece);
    for (int i = 0; i < 2; i++) {
        memcpy((char *)whole.data + (size_t)part[i].first * size, *from, (size_t)part[i].count * size);
        *from += (size_t)part[i].count * size;
    }
}

/* The rounded weights of a piece: of the masters that this device has, and what was carried of the others. */
static enum error_code put_rounded(struct trainer *section, const struct parameter *own, const char **from,
                                   struct error *err)
{
    struct holding held, masters;
    enum error_code e = holding_of(section, section->comm->rank, own->index, own->tile, KIND_WEIGHT, &held, err);
    if (!e) e = holding_of(section, section->comm->rank, own->index, own->tile, KIND_MASTER, &masters, err);
    struct tensor whole = tensor_1d(NULL, section->plan.dtype, e ? 0 : layout_count(&held.layout)), piece;
    struct interval kept;
    if (!e) e = collect_own(section, own, KIND_MASTER, &kept, &piece, err);
    if (e) return e;
    whole.data = calloc(tensor_bytes(whole) + 1, 1);
    if (whole.data) {
        join_rounded(whole, held.kept, kept, piece, from);
        collect_keep(section, own, KIND_WEIGHT, whole);
    } else e = fail(err, ERR_MEMORY, "no memory to keep %s", own->spec.name);
    free(piece.data), free(whole.data);
    return e;
}

static enum error_code put_piece(struct trainer *section, const struct named_tensor *tensor,
                                 const struct parameter *own, const char **from, struct error *err)
{
    struct holding held;
    if (tensor->rounded) return put_rounded(section, own, from, err);
    enum error_code e = holding_of(section, section->comm->rank, own->index, own->tile, tensor->kind, &held, err);
    struct tensor piece = tensor_1d(NULL, tensor->format, e ? 0 : layout_count(&held.layout));
    if (e) return e;
    piece.data = calloc(tensor_bytes(piece) + 1, 1);
    if (piece.data == NULL) return fail(err, ERR_MEMORY, "no memory to keep %s", tensor->name);
    const size_t size = dtype_size(tensor->format), bytes = (size_t)held.kept.count * size;
    memcpy((char *)piece.data + (size_t)held.kept.first * size, *from, bytes);
    *from += bytes;
    collect_keep(section, own, tensor->kind, piece);
    free(piece.data);
    return e;
}

/* The parameter of an encoder, which a device without the encoder does not have. */
static enum error_code put_encoder(struct trainer *trainer, const struct named_tensor *tensor, const char *from,
                                   struct error *err)
{
    const int m = tensor->encoder - 1, rank = trainer->comm->rank;
    const enum encoder_param p = (enum encoder_param)tensor->index;
    struct interval held, masters = { 0 };
    enum error_code e = encoder_kept(trainer, m, rank, p, tensor->kind, &held, err);
    if (!e && tensor->rounded) e = encoder_kept(trainer, m, rank, p, KIND_MASTER, &masters, err);
    if (e || !trainer->encoders.of[m].here) return e;
    const size_t size = dtype_size(tensor->format);
    struct tensor own = tensor_1d(NULL, tensor->format, encoder_count(&modalities[m], trainer->plan.model.D, p));
    struct tensor piece = tensor_1d(NULL, data_format(&trainer->data, KIND_MASTER), masters.count);
    own.data = calloc(tensor_bytes(own) + 1, 1), piece.data = calloc(tensor_bytes(piece) + 1, 1);
    if (own.data && piece.data) {
        if (tensor->rounded) encoder_take(trainer, m, p, KIND_MASTER, piece);
        join_rounded(own, held, masters, piece, &from);
        encoder_put(trainer, m, p, tensor->kind,
                    tensor_1d((char *)own.data + (size_t)held.first * size, own.dtype, held.count));
    } else e = fail(err, ERR_MEMORY, "no memory to keep %s", tensor->name);
    free(own.data), free(piece.data);
    return e;
}

enum error_code carried_put(const struct carried *carried, const struct collection *collection, struct trainer *own,
                            struct error *err)
{
    enum error_code e = OK;
    for (int t = 0; t < collection->count && !e; t++) {
        const struct named_tensor *const tensor = &collection->tensor[t];
        const char *from = carried->data[t];
        struct trainer *section;
        if (tensor->job) put_job(own, tensor, from);
        if (tensor->encoder) e = put_encoder(own, tensor, from, err);
        for (int s = 0; !tensor->job && !tensor->encoder && (section = trainer_section(own, s)) != NULL; s++) {
            const struct parameter *const p = parameter_find(&section->parameters, tensor->index);
            const int tiles = p && !data_keeps_whole(&section->data, tensor->kind)
                ? tiles_of(&section->plan.data, &p->spec) : p != NULL;
            for (int tile = 0; tile < tiles && !e; tile++) e = put_piece(section, tensor, p + tile, &from, err);
        }
    }
    return e;
}
