/* strided_transfer.c -- packs and sends strided bytes in one message, in segments, or piece by piece.
 * schemes/spatial/halo.c and model/collection/transfer.c call.  Errors: ERR_MEMORY; ERR_COMM as message_wait. */
#include "emulated_devices/comm/strided_transfer.h"
#include "emulated_devices/device/backend.h"
#include <stdlib.h>

struct strided_choice strided_choice_to(const struct group *group, int peer, const struct strided_pair *pair, int pairs)
{
    const struct clock *const clock = &group->comm->device->clock;
    const struct strided_road road = { &clock->cluster, clock->dtype, group_level(group, peer) };
    const struct strided_size size = strided_size_of(pair, pairs);
    return strided_choose(&road, pair, pairs, &size);
}

void strided_enter(struct traffic *traffic, int level, const struct strided_pair *pair, int pairs,
                   struct strided_choice choice)
{
    const struct strided_size size = strided_size_of(pair, pairs);
    struct strided_walk walk = strided_walk_begin(pair, pairs);
    struct strided_piece piece;
    for (int i = 0; i < choice.messages; i++) {
        if (choice.way == DIRECT) strided_next(&walk, &piece);
        else piece.bytes = strided_segment(&size, choice.messages, i);
        traffic_send(traffic, level, (uint64_t)piece.bytes, 1);
    }
}

enum error_code strided_open(struct strided_transfer *transfer, struct group *group, int peer, enum strided_side side,
                             const struct strided_pair *pair, int pairs, struct error *err)
{
    *transfer = (struct strided_transfer){ .group = group, .peer = peer, .side = side, .pair = pair, .pairs = pairs,
                                           .size = strided_size_of(pair, pairs),
                                           .choice = strided_choice_to(group, peer, pair, pairs) };
    transfer->message = calloc((size_t)transfer->choice.messages, sizeof *transfer->message);
    return transfer->message ? OK : fail(err, ERR_MEMORY, "no memory for %d messages", transfer->choice.messages);
}

/* Whether this side has a kernel that packs. */
static bool transfer_packs(const struct strided_transfer *transfer)
{
    return transfer->choice.way != DIRECT && transfer->size.apart[transfer->side];
}

uint64_t strided_packed(const struct strided_transfer *transfer)
{
    return transfer_packs(transfer) ? (uint64_t)transfer->size.bytes : 0;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* All repetitions from a dimension on, by the device.  @return the packed bytes behind. */
static char *pack_on_device(struct device *device, const struct strided *form, int dim, char *apart, char *packed,
                            bool packs)
{
    const uint64_t run = (uint64_t)form->run;
    if (dim < form->ndim - 1) {
        for (int64_t i = 0; i < form->dim[dim].count; i++)
            packed = pack_on_device(device, form, dim + 1, apart + i * form->dim[dim].stride, packed, packs);
        return packed;
    }
    const int64_t count = form->ndim > 0 ? form->dim[dim].count : 1;
    const uint64_t stride = form->ndim > 0 ? (uint64_t)form->dim[dim].stride : run;
    if (packs) device_copy_rows(device, packed, run, apart, stride, run, count);
    else device_copy_rows(device, apart, stride, packed, run, run, count);
    return packed + run * (uint64_t)count;
}

/* All pairs, from where they are into the packed bytes or back. */
static void pack_all(const struct strided_transfer *transfer)
{
    const bool sends = transfer->side == SENDS_STRIDED;
    char *at = transfer->packed;
    for (int p = 0; p < transfer->pairs; p++) {
        const struct strided *const form = sends ? &transfer->pair[p].from : &transfer->pair[p].to;
        if (strided_bytes(form) == 0) continue;
        if (!transfer->host)
            pack_on_device(transfer->group->comm->device, form, 0, transfer->memory[p] + form->offset, at, sends);
        else if (sends) strided_pack(at, transfer->memory[p], form);
        else strided_unpack(transfer->memory[p], form, at);
        at += strided_bytes(form);
    }
}

static void charge_segment(const struct strided_transfer *transfer, int i)
{
    const int64_t bytes = strided_segment(&transfer->size, transfer->choice.messages, i);
    device_charge(transfer->group->comm->device, STRIDED_PACK, strided_cost(&transfer->size, transfer->side, bytes));
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The first byte of a side whose bytes lie side by side: pairs without bytes are passed over. */
static char *whole_of(const struct strided_transfer *transfer)
{
    struct strided_walk walk = strided_walk_begin(transfer->pair, transfer->pairs);
    struct strided_piece piece;
    if (!strided_next(&walk, &piece)) return NULL;
    return transfer->memory[piece.pair] + (transfer->side == SENDS_STRIDED ? piece.from : piece.to);
}

static void start_message(struct strided_transfer *transfer, struct exchange *exchange, int i, char *data,
                          int64_t bytes)
{
    clock_start_collective(&transfer->group->comm->device->clock);
    transfer->message[i] = transfer->side == SENDS_STRIDED
        ? message_send(exchange, transfer->peer, data, (uint64_t)bytes)
        : message_receive(exchange, transfer->peer, data, (uint64_t)bytes);
}

void strided_start(struct strided_transfer *transfer, struct exchange *exchange, char *const *memory, void *packed)
{
    const bool sends = transfer->side == SENDS_STRIDED, packs = transfer_packs(transfer);
    struct strided_walk walk = strided_walk_begin(transfer->pair, transfer->pairs);
    struct strided_piece piece;
    transfer->memory = memory, transfer->packed = packed;
    if (packs && sends) pack_all(transfer);
    char *at = packs ? packed : whole_of(transfer);
    for (int i = 0; i < transfer->choice.messages; i++) {
        if (transfer->choice.way == DIRECT) {
            strided_next(&walk, &piece);
            start_message(transfer, exchange, i, memory[piece.pair] + (sends ? piece.from : piece.to), piece.bytes);
            continue;
        }
        const int64_t bytes = strided_segment(&transfer->size, transfer->choice.messages, i);
        if (packs && sends) charge_segment(transfer, i);
        start_message(transfer, exchange, i, at, bytes);
        at += bytes;
    }
}

/* Every message is waited for, also after an error: the carrier uses its buffer until then. */
enum error_code strided_wait(struct strided_transfer *transfer, struct error *err)
{
    const bool unpacks = transfer->side == RECEIVES_STRIDED && transfer_packs(transfer);
    struct error unread;
    enum error_code e = OK;
    for (int i = 0; i < transfer->choice.messages; i++) {
        const enum error_code waited = message_wait(transfer->group->comm, transfer->message[i], e ? &unread : err);
        e = e ? e : waited;
        if (unpacks && !waited) charge_segment(transfer, i);
    }
    if (unpacks && !e) pack_all(transfer);
    free(transfer->message);
    transfer->message = NULL;
    return e;
}
