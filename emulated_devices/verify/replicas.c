#include "emulated_devices/verify/replicas.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/diagnose.h"
#include "emulated_devices/verify/hash.h"
#include "ref/optim/galore.h"
#include <stdio.h>
#include <stdlib.h>

/* What one device keeps of one box of a tensor. */
struct box_hash {
    int32_t index, kind;                /* parameter; a place in kind_of */
    uint64_t box, bits;                 /* box: which elements, and of which replica where those train apart */
};

static const enum tensor_kind kind_of[] = { KIND_WEIGHT, KIND_GRADIENT, KIND_MASTER, KIND_ANCHOR, KIND_MOMENTUM, KIND_STATE, KIND_STATE + 1,
                                           KIND_STATE + 2, KIND_STATE + 3 };
enum { STATES_FROM = 5, MOST_KINDS = STATES_FROM + OPTIMIZER_MAX_STATES, MOST_BOXES = 3 };      /* boxes: queries, keys, values */

/* A box, which of its elements are kept, and by which replica. */
static uint64_t hash_box(const struct box *b, int ndim, struct range kept, int whose)
{
    uint64_t h = hash_bytes(hash_bytes(HASH_START, &kept, sizeof kept), &whose, sizeof whose);
    h = hash_bytes(h, b->start, sizeof *b->start * (size_t)ndim);
    return hash_bytes(h, b->extent, sizeof *b->extent * (size_t)ndim);
}

static int64_t elements(const struct box *b, int ndim)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= b->extent[d];
    return n;
}

/* Box by box: of a fused matrix some boxes may be copies, those of keys and values, and others not. */
static int list_boxes(const struct parameter *p, const struct layout *l, int kind, int whose, struct range kept, struct tensor x, struct box_hash *out)
{
    const size_t size = dtype_size(x.dtype);
    int64_t from = 0;
    int n = 0;
    for (int b = 0; b < l->boxes; b++) {
        const int64_t count = elements(&l->box[b], l->ndim);
        const struct range part = range_meet(kept, (struct range){ from, count }), within = { part.first - from, part.count };
        const char *own = (const char *)x.data + (size_t)(part.first - kept.first) * size;
        if (part.count > 0)
            out[n++] = (struct box_hash){ p->index, kind, hash_box(&l->box[b], l->ndim, within, whose), hash_bytes(HASH_START, own, (size_t)part.count * size) };
        from += count;
    }
    return n;
}

static bool is_kept(const struct trainer *t, enum tensor_kind kind)
{
    if (kind == KIND_MASTER) return data_has_masters(&t->data);
    if (kind == KIND_ANCHOR) return t->data.shards.apart;
    return kind != KIND_MOMENTUM || (t->data.shards.apart && t->data.outer.momentum > 0);
}

/* Before the optimizer's step its states are old. */
static int compared_kinds(const struct trainer *t, enum replicas_when when, int kinds[MOST_KINDS])
{
    const struct optimizer *o = t->plan.optimizer;
    const int end = when == BEFORE_OPTIMIZER ? 2 - o->forward_only : STATES_FROM + o->states;
    int n = 0;
    for (int k = 0; k < end; k++)
        if (is_kept(t, kind_of[k]) && (when == BEFORE_OPTIMIZER || kind_of[k] != KIND_GRADIENT)) kinds[n++] = k;
    return n;
}

/* Replicas that train apart have equal weights right after an outer step. */
static bool is_a_replicas_own(const struct trainer *t, enum tensor_kind kind, enum replicas_when when)
{
    if (!t->data.shards.apart || kind_is_common(kind)) return false;
    return !((kind == KIND_WEIGHT || kind == KIND_MASTER) && when == AFTER_OPTIMIZER && outer_follows(&t->data.outer, t->step));
}

static int list_own(const struct trainer *t, enum replicas_when when, struct box_hash *out)
{
    int n = 0;
    for (int i = 0; i < t->parameters.count; i++) {
        const struct parameter *p = &t->parameters.all[i];
        int kinds[MOST_KINDS];
        for (int c = 0, all = compared_kinds(t, when, kinds); c < all; c++) {
            const int k = kinds[c];
            struct error err;
            struct tensor x;
            struct range kept;
            if (collect_own(t, p, kind_of[k], &kept, &x, &err))
                comm_give_up(t->comm, &err);
            const int whose = is_a_replicas_own(t, kind_of[k], when) ? shards_replica_of(&t->data.shards, t->dp.rank) : 0;
            const struct param_spec spec = data_spec(&t->data, &p->spec, kind_of[k]);
            const struct layout l = data_keeps_whole(&t->data, kind_of[k]) ? layout_whole(spec.ndim, spec.dim) : p->layout;
            n += list_boxes(p, &l, k, whose, kept, x, out + n);
            free(x.data);
        }
    }
    return n;
}

/* All devices' lists, on rank 0: each has `room` places, and its count. */
static enum error_code gather_lists(struct trainer *t, struct box_hash *own, int own_count, struct box_hash *all, int *count, int room, struct error *err)
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

static const struct box_hash *find(const struct box_hash *list, int count, const struct box_hash *like)
{
    for (int i = 0; i < count; i++)
        if (list[i].index == like->index && list[i].kind == like->kind && list[i].box == like->box) return &list[i];
    return NULL;
}

static enum error_code say(const struct trainer *t, const struct box_hash *p, int rank, const struct evidence *on, enum replicas_when when, struct error *err)
{
    static const char *const name[STATES_FROM] = { "weight", "gradient", "master of", "anchor of", "outer momentum of" };
    char place[128], device[64];
    const char *kind = p->kind < STATES_FROM ? name[p->kind] : t->plan.optimizer->state_name[p->kind - STATES_FROM];
    int other = 0;
    while (!devices_have(&on->failing, other)) other++;
    diagnose_place(place, sizeof place, &t->plan.mesh, on);
    return fail(err, ERR_CHECK, "step %lld, %s the optimizer: %s %s on device %d (%s) has other bits than its copy on device %d; they differ on %s",
                (long long)(t->step + (when == BEFORE_OPTIMIZER)), when == BEFORE_OPTIMIZER ? "before" : "after", kind,
                t->spec[p->index].name, other, mesh_describe(&t->plan.mesh, other, device, sizeof device), rank, place);
}

/* Each box beside the copies that later ranks have of it. */
static enum error_code compare_lists(const struct trainer *t, const struct box_hash *all, const int *count, int room, enum replicas_when when, struct error *err)
{
    for (int r = 0; r < t->comm->size; r++)
        for (int i = 0; i < count[r]; i++) {
            const struct box_hash *mine = &all[(int64_t)r * room + i];
            struct evidence on = { .holding = { { 0 } } };
            devices_add(&on.holding, r);
            for (int other = r + 1; other < t->comm->size; other++) {
                const struct box_hash *copy = find(all + (int64_t)other * room, count[other], mine);
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
    const int tiles = t->plan.data.tiles > 1 ? t->plan.data.tiles : 1, room = model_param_count(&t->plan.model) * tiles * MOST_KINDS * MOST_BOXES;
    const bool here = t->comm->rank == 0;
    struct box_hash *own = calloc((size_t)room, sizeof *own), *all = here ? calloc((size_t)room * (size_t)t->comm->size, sizeof *all) : NULL;
    int *count = here ? calloc((size_t)t->comm->size, sizeof *count) : NULL;
    enum error_code e = own && (!here || (all && count)) ? OK : fail(err, ERR_MEMORY, "no memory for the hashes of %d tensors", room);
    e = comm_agree(t->comm, e, err);
    if (!e) e = gather_lists(t, own, list_own(t, when, own), all, count, room, err);
    if (!e && here) e = compare_lists(t, all, count, room, when, err);
    free(own), free(all), free(count);
    return comm_agree(t->comm, e, err);
}
