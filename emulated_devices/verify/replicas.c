#include "emulated_devices/verify/replicas.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/diagnose.h"
#include "emulated_devices/verify/hash.h"
#include <stdio.h>
#include <stdlib.h>

/* What one device keeps of one tensor. */
struct piece_hash {
    int32_t index, kind;                /* parameter; a place in kind_of */
    uint64_t boxes, bits;               /* boxes: which elements, and of which replica where those train apart */
};

static const enum tensor_kind kind_of[] = { KIND_WEIGHT, KIND_GRADIENT, KIND_MASTER, KIND_ANCHOR, KIND_MOMENTUM, KIND_STATE, KIND_STATE + 1 };
enum { STATES_FROM = 5, MOST_KINDS = STATES_FROM + OPTIMIZER_MAX_STATES };

static uint64_t hash_boxes(const struct layout *l)
{
    uint64_t h = HASH_START;
    for (int b = 0; b < l->boxes; b++)
        for (int d = 0; d < l->ndim; d++) {
            h = hash_bytes(h, &l->box[b].start[d], sizeof l->box[b].start[d]);
            h = hash_bytes(h, &l->box[b].extent[d], sizeof l->box[b].extent[d]);
        }
    return h;
}

static bool is_kept(const struct trainer *t, enum tensor_kind kind)
{
    if (kind == KIND_MASTER) return data_has_masters(&t->data);
    if (kind == KIND_ANCHOR) return t->data.shards.apart;
    return kind != KIND_MOMENTUM || (t->data.shards.apart && t->data.outer.momentum > 0);
}

/* Replicas that train apart have equal weights right after an outer step. */
static bool is_a_replicas_own(const struct trainer *t, enum tensor_kind kind, enum replicas_when when)
{
    if (!t->data.shards.apart || kind_is_common(kind)) return false;
    return !((kind == KIND_WEIGHT || kind == KIND_MASTER) && when == AFTER_OPTIMIZER && outer_follows(&t->data.outer, t->step));
}

static int list_own(const struct trainer *t, enum replicas_when when, struct piece_hash *out)
{
    int n = 0;
    for (int i = 0; i < t->parameters.count; i++) {
        const struct parameter *p = &t->parameters.all[i];
        const int kinds = when == BEFORE_OPTIMIZER ? 2 - t->plan.optimizer->forward_only : STATES_FROM + t->plan.optimizer->states;
        for (int k = 0; k < kinds; k++) {
            if (when == AFTER_OPTIMIZER && kind_of[k] == KIND_GRADIENT) continue;
            if (!is_kept(t, kind_of[k])) continue;
            struct error err;
            struct tensor x;
            struct range kept;
            if (collect_own(t, p, kind_of[k], &kept, &x, &err))
                comm_give_up(t->comm, &err);
            const int whose = is_a_replicas_own(t, kind_of[k], when) ? shards_replica_of(&t->data.shards, t->dp.rank) : 0;
            out[n++] = (struct piece_hash){ p->index, k, hash_bytes(hash_bytes(hash_boxes(&p->layout), &kept, sizeof kept), &whose, sizeof whose),
                                            hash_bytes(HASH_START, x.data, tensor_bytes(x)) };
            free(x.data);
        }
    }
    return n;
}

/* All devices' lists, on rank 0: each has `room` places, and its count. */
static enum error_code gather_lists(struct trainer *t, struct piece_hash *own, int own_count, struct piece_hash *all, int *count, int room, struct error *err)
{
    struct exchange x = exchange_begin(&t->world, CONTROL);
    enum error_code e = OK;
    if (t->comm->rank != 0) {
        e = message_wait(t->comm, message_send(&x, 0, &own_count, sizeof own_count), err);
        return e ? e : message_wait(t->comm, message_send(&x, 0, own, (uint64_t)own_count * sizeof *own), err);
    }
    for (int i = 0; i < own_count; i++) all[i] = own[i];
    count[0] = own_count;
    for (int r = 1; r < t->comm->size && !e; r++) {
        e = message_wait(t->comm, message_receive(&x, r, &count[r], sizeof count[r]), err);
        if (!e) e = message_wait(t->comm, message_receive(&x, r, all + (int64_t)r * room, (uint64_t)count[r] * sizeof *all), err);
    }
    return e;
}

static const struct piece_hash *find(const struct piece_hash *list, int count, const struct piece_hash *like)
{
    for (int i = 0; i < count; i++)
        if (list[i].index == like->index && list[i].kind == like->kind && list[i].boxes == like->boxes) return &list[i];
    return NULL;
}

static enum error_code say(const struct trainer *t, const struct piece_hash *p, int rank, const struct evidence *on, enum replicas_when when, struct error *err)
{
    static const char *const name[STATES_FROM] = { "weight", "gradient", "master of", "anchor of", "outer momentum of" };
    char place[128], device[64];
    const char *kind = p->kind < STATES_FROM ? name[p->kind] : t->plan.optimizer->state_name[p->kind - STATES_FROM];
    int other = 0;
    while (!devices_have(&on->failing, other)) other++;
    diagnose_place(place, sizeof place, &t->plan.mesh, on);
    return fail(err, ERR_CHECK, "step %lld, %s the optimizer: %s %s on device %d (%s) has other bits than its copy on device %d; they differ on %s",
                (long long)(t->step + (when == BEFORE_OPTIMIZER)), when == BEFORE_OPTIMIZER ? "before" : "after", kind,
                model_param(&t->plan.model, p->index).name, other, mesh_describe(&t->plan.mesh, other, device, sizeof device), rank, place);
}

/* Each piece beside the copies that later ranks have of it. */
static enum error_code compare_lists(const struct trainer *t, const struct piece_hash *all, const int *count, int room, enum replicas_when when, struct error *err)
{
    for (int r = 0; r < t->comm->size; r++)
        for (int i = 0; i < count[r]; i++) {
            const struct piece_hash *mine = &all[(int64_t)r * room + i];
            struct evidence on = { .holding = { { 0 } } };
            devices_add(&on.holding, r);
            for (int other = r + 1; other < t->comm->size; other++) {
                const struct piece_hash *copy = find(all + (int64_t)other * room, count[other], mine);
                if (copy == NULL) continue;
                devices_add(&on.holding, other);
                if (copy->bits != mine->bits) devices_add(&on.failing, other);
            }
            if (devices_count(&on.failing) > 0) return say(t, mine, r, &on, when, err);
        }
    return OK;
}

enum error_code replicas_check(struct trainer *t, enum replicas_when when, struct error *err)
{
    const int room = model_param_count(&t->plan.model) * MOST_KINDS;
    const bool here = t->comm->rank == 0;
    struct piece_hash *own = calloc((size_t)room, sizeof *own), *all = here ? calloc((size_t)room * (size_t)t->comm->size, sizeof *all) : NULL;
    int *count = here ? calloc((size_t)t->comm->size, sizeof *count) : NULL;
    enum error_code e = own && (!here || (all && count)) ? OK : fail(err, ERR_MEMORY, "no memory for the hashes of %d tensors", room);
    e = comm_agree(t->comm, e, err);
    if (!e) e = gather_lists(t, own, list_own(t, when, own), all, count, room, err);
    if (!e && here) e = compare_lists(t, all, count, room, when, err);
    free(own), free(all), free(count);
    return comm_agree(t->comm, e, err);
}
