/* snapshot.c -- copies a device's numbers, and sends what only it has to its keeper.
 * run/elastic/losing.c calls.  Errors: ERR_MEMORY; ERR_COMM of a message. */
#include "emulated_devices/model/collection/snapshot.h"
#include <stdlib.h>
#include <string.h>

static uint64_t boxes_bytes(const struct collection *collection, int tensor, const struct boxes *boxes)
{
    return (uint64_t)boxes_total(boxes, collection->tensor[tensor].ndim) * collection_size(collection, tensor);
}

enum error_code snapshot_copied(const struct collection *collection, int device, uint64_t *copied, struct error *err)
{
    enum error_code e = OK;
    *copied = 0;
    for (int t = 0; t < collection->count && !e; t++) {
        struct boxes has = { 0 };
        e = collection_has(collection, t, device, &has, err);
        if (!e) *copied += boxes_bytes(collection, t, &has);
        boxes_free(&has);
    }
    return e;
}

enum error_code snapshot_bytes(const struct collection *collection, int device, uint64_t *copied, uint64_t *sent,
                               struct error *err)
{
    const int rank = collection_place(collection, device);
    enum error_code e = snapshot_copied(collection, device, copied, err);
    *sent = 0;
    /* One device alone has no keeper. */
    const bool sends = rank >= 0 && collection->trainer->plan.mesh.devices > 1;
    for (int t = 0; t < collection->count && !e && sends; t++) {
        struct boxes only = { 0 };
        e = collection_only(collection, t, rank, &only, err);
        if (!e) *sent += boxes_bytes(collection, t, &only);
        boxes_free(&only);
    }
    return e;
}

/* Make room for what only a rank has. */
static enum error_code open_only(struct carried *carried, const struct collection *collection, int rank,
                                 struct error *err)
{
    *carried = (struct carried){ .count = collection->count,
                                 .boxes = calloc((size_t)collection->count + 1, sizeof *carried->boxes),
                                 .data = calloc((size_t)collection->count + 1, sizeof *carried->data) };
    enum error_code e = carried->boxes && carried->data ? OK : fail(err, ERR_MEMORY, "no memory for a snapshot");
    for (int t = 0; t < carried->count && !e; t++) {
        e = collection_only(collection, t, rank, &carried->boxes[t], err);
        if (e) continue;
        carried->data[t] = calloc(boxes_bytes(collection, t, &carried->boxes[t]) + 1, 1);
        if (carried->data[t] == NULL) e = fail(err, ERR_MEMORY, "no memory for a snapshot");
    }
    return e;
}

static uint64_t carried_bytes(const struct carried *carried, const struct collection *collection)
{
    uint64_t bytes = 0;
    for (int t = 0; t < carried->count; t++) bytes += boxes_bytes(collection, t, &carried->boxes[t]);
    return bytes;
}

/* Copy between a list of tensors and one message, tensor after tensor.  @return bytes. */
static uint64_t pack_all(const struct carried *carried, const struct collection *collection, char *message, bool out)
{
    char *at = message;
    for (int t = 0; t < carried->count; t++) {
        const uint64_t bytes = boxes_bytes(collection, t, &carried->boxes[t]);
        if (out) memcpy(at, carried->data[t], bytes);
        else memcpy(carried->data[t], at, bytes);
        at += bytes;
    }
    return (uint64_t)(at - message);
}

/* Take out of the copy what only this device has. */
static void pick_only(const struct snapshot *snapshot, const struct collection *collection, struct carried *only)
{
    for (int t = 0; t < only->count; t++)
        for (int b = 0; b < only->boxes[t].count; b++)
            boxes_copy(only->data[t], &only->boxes[t], snapshot->own.data[t], &snapshot->own.boxes[t],
                       &only->boxes[t].at[b], collection->tensor[t].ndim, collection_size(collection, t));
}

/* The rank whose keeper this one is; the rule of keepers is a permutation. */
static int ward_of(const struct collection *collection, int rank)
{
    const int devices = collection->trainer->plan.mesh.devices;
    for (int r = 0; r < devices; r++)
        if (r != rank && collection_keeper(collection, r) == rank) return r;
    return -1;
}

static enum error_code swap_only(struct snapshot *snapshot, const struct collection *collection, struct comm *comm,
                            const struct carried *only, struct error *err)
{
    const uint64_t out = carried_bytes(only, collection), in = carried_bytes(&snapshot->ward, collection);
    const int keeper = collection_keeper(collection, comm->rank), ward = ward_of(collection, comm->rank);
    char *const sent = malloc(out + 1), *const got = malloc(in + 1);
    enum error_code e = sent && got ? OK : fail(err, ERR_MEMORY, "no memory for a snapshot of %llu bytes",
                                                (unsigned long long)(out + in));
    e = comm_agree(comm, e, err);
    if (!e) {
        struct exchange x = exchange_begin(comm->everyone, CONTROL);
        snapshot->sent = pack_all(only, collection, sent, true);
        e = exchange_both(&x, out ? keeper : -1, sent, out, in ? ward : -1, got, in, err);
    }
    if (!e) pack_all(&snapshot->ward, collection, got, false);
    free(sent), free(got);
    return e;
}

enum error_code snapshot_take(struct snapshot *snapshot, const struct collection *collection, struct trainer *trainer,
                              struct error *err)
{
    struct comm *const comm = trainer->comm;
    const int device = comm_process(comm, comm->rank);
    struct carried only = { 0 };
    snapshot_free(snapshot);
    enum error_code e = carried_take(&snapshot->own, collection, device, trainer, err);
    if (!e) e = open_only(&only, collection, comm->rank, err);
    if (!e && ward_of(collection, comm->rank) >= 0)
        e = open_only(&snapshot->ward, collection, ward_of(collection, comm->rank), err);
    if (!e) pick_only(snapshot, collection, &only);
    e = comm_agree(comm, e, err);
    if (!e && comm->size > 1) e = swap_only(snapshot, collection, comm, &only, err);
    snapshot->copied = carried_bytes(&snapshot->own, collection), snapshot->step = trainer->step;
    carried_free(&only);
    return comm_agree(comm, e, err);
}

enum error_code snapshot_give(struct snapshot *snapshot, const struct collection *collection,
                              const struct losses *losses, int device, struct carried *gives, struct error *err)
{
    const int rank = collection_place(collection, device);
    *gives = snapshot->own, snapshot->own = (struct carried){ 0 };
    bool keeps = false;
    for (int i = 0; i < losses->count; i++) {
        const int lost = losses->device[i], gone = collection->place ? collection->place[lost] : lost;
        keeps = keeps || (rank >= 0 && gone >= 0 && collection_keeper(collection, gone) == rank);
    }
    for (int t = 0; t < gives->count && keeps; t++) {
        const uint64_t own = boxes_bytes(collection, t, &gives->boxes[t]),
            more = boxes_bytes(collection, t, &snapshot->ward.boxes[t]);
        char *const both = realloc(gives->data[t], own + more + 1);
        if (both == NULL) return fail(err, ERR_MEMORY, "no memory for what a neighbour had");
        gives->data[t] = both;
        memcpy(both + own, snapshot->ward.data[t], more);
        boxes_add_all(&gives->boxes[t], &snapshot->ward.boxes[t], collection->tensor[t].ndim);
        if (boxes_lost(&gives->boxes[t])) return fail(err, ERR_MEMORY, "no memory for what a neighbour had");
    }
    snapshot_free(snapshot);
    return OK;
}

static void poison_carried(struct carried *carried, const struct collection *collection)
{
    /* With every bit set it is no number in any format. */
    for (int t = 0; t < carried->count; t++)
        memset(carried->data[t], 0xff, boxes_bytes(collection, t, &carried->boxes[t]));
}

void snapshot_poison(struct snapshot *snapshot, const struct collection *collection)
{
    poison_carried(&snapshot->own, collection), poison_carried(&snapshot->ward, collection);
    snapshot_free(snapshot);
}

void snapshot_free(struct snapshot *snapshot)
{
    carried_free(&snapshot->own), carried_free(&snapshot->ward);
    *snapshot = (struct snapshot){ .step = -1 };
}
