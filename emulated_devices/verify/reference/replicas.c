/* replicas.c -- hashes every device's pieces, compares the hashes of copies on rank 0, and reports the first
 * difference.  The callers of replicas_check are watch.c, verify/cases/case.c and tests.  Errors: ERR_CHECK names the
 * first difference; ERR_MEMORY. */
#include "emulated_devices/verify/reference/replicas.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/check/report/diagnose.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/verify/hash.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/optim/galore.h"
#include <stdlib.h>
#include <string.h>

/* A device keeps this of one box of a tensor, with its hash. */
struct box_hash {
    int32_t index, kind, whose;         /* parameter; index in kind_of; the replica, if replicas train apart */
    struct box box;
    struct interval kept;               /* the kept range of the box's elements */
    uint64_t bits;
    bool copy;                          /* an earlier device has the same elements */
};

static const enum tensor_kind kind_of[] = { KIND_WEIGHT, KIND_GRADIENT,  KIND_MASTER,    KIND_ANCHOR,   KIND_MOMENTUM,
                                            KIND_STATE,  KIND_STATE + 1, KIND_STATE + 2, KIND_STATE + 3 };
/* A fused matrix has three boxes: queries, keys, values. */
enum { STATES_FROM = 5, MOST_KINDS = STATES_FROM + OPTIMIZER_MAX_STATES, MOST_BOXES = 3 };

/* The number of elements of a box is the product of its extents. */
static int64_t replicas_elements(const struct box *box, int ndim)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= box->extent[d];
    return n;
}

/* List box by box: of a fused matrix some boxes (keys and values) may be copies, and others not. */
static int list_boxes(const struct parameter *parameter, const struct layout *layout, int kind, int whose,
                      struct interval kept, struct tensor x, struct box_hash *out)
{
    const size_t size = dtype_size(x.dtype);
    int64_t from = 0;
    int n = 0;
    for (int b = 0; b < layout->boxes; b++) {
        const int64_t count = replicas_elements(&layout->box[b], layout->ndim);
        /* part: which of the box's elements the device keeps; `from` counts the boxes before this one. */
        const struct interval part = interval_meet(kept, (struct interval){ from, count });
        const char *own = (const char *)x.data + (size_t)(part.first - kept.first) * size;
        if (part.count > 0)
            out[n++] = (struct box_hash){ parameter->index, kind, whose, layout->box[b],
                                         { part.first - from, part.count },
                                          hash_bytes(HASH_START, own, (size_t)part.count * size), false };
        from += count;
    }
    return n;
}

/* Whether the trainer keeps tensors of this kind: masters, anchors and momentum exist in some plans alone. */
static bool replicas_is_kept(const struct trainer *trainer, enum tensor_kind kind)
{
    if (kind == KIND_MASTER) return data_has_masters(&trainer->data);
    if (kind == KIND_ANCHOR) return trainer->data.shards.apart;
    return kind != KIND_MOMENTUM || (trainer->data.shards.apart && outer_has_momentum(&trainer->data.outer));
}

/* Before the optimizer's step its states are not compared: they have not changed. */
static int compared_kinds(const struct trainer *trainer, enum replicas_when when, int kinds[MOST_KINDS])
{
    const struct optimizer *o = trainer->plan.optimizer;
    const int end = when == BEFORE_OPTIMIZER ? 2 - o->forward_only : STATES_FROM + o->states;
    int n = 0;
    for (int k = 0; k < end; k++)
        if (replicas_is_kept(trainer, kind_of[k]) && (when == BEFORE_OPTIMIZER || kind_of[k] != KIND_GRADIENT))
            kinds[n++] = k;
    return n;
}

/* Replicas that train apart have equal weights only right after an outer step. */
static bool is_a_replicas_own(const struct trainer *trainer, enum tensor_kind kind, enum replicas_when when)
{
    if (!trainer->data.shards.apart || kind_is_common(kind)) return false;
    return !((kind == KIND_WEIGHT || kind == KIND_MASTER) && when == AFTER_OPTIMIZER &&
             outer_follows(&trainer->data.outer, trainer->step));
}

/* List all boxes of all pieces that this device keeps, with their hashes.  Every device lists the same kinds in the
 * same order.  A device that cannot read a piece ends all devices. */
static int list_own(struct trainer *trainer, enum replicas_when when, struct box_hash *out)
{
    int n = 0;
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++)
        n += list_own(&trainer->section[i], when, out + n);
    for (int i = 0; i < trainer->parameters.count; i++) {
        const struct parameter *p = &trainer->parameters.all[i];
        int kinds[MOST_KINDS];
        for (int c = 0, all = compared_kinds(trainer, when, kinds); c < all; c++) {
            const int k = kinds[c];
            struct error err;
            struct tensor x;
            struct interval kept;
            if (collect_own(trainer, p, kind_of[k], &kept, &x, &err))
                comm_give_up(trainer->comm, &err);
            /* A tensor that each replica has for itself is compared within the replica alone. */
            const int whose =
                is_a_replicas_own(trainer, kind_of[k], when)
                    ? shards_replica_of(&trainer->data.shards, trainer->dp.rank) : 0;
            const struct param_spec spec = data_spec(&trainer->data, &p->spec, kind_of[k]);
            const struct layout l =
                data_keeps_whole(&trainer->data, kind_of[k]) ? layout_whole(spec.ndim, spec.dim) : p->layout;
            n += list_boxes(p, &l, k, whose, kept, x, out + n);
            free(x.data);
        }
    }
    return n;
}

/* Gather all devices' lists on rank 0: `room` entries for each, and its count. */
static enum error_code gather_lists(struct trainer *trainer, struct box_hash *own, int own_count, struct box_hash *all,
                                    int *count, int room, struct error *err)
{
    enum error_code e = comm_bring(trainer->comm, &own_count, sizeof own_count, count, err);
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    if (e) return e;
    if (trainer->comm->rank != 0)
        return message_wait(trainer->comm, message_send(&x, 0, own, (uint64_t)own_count * sizeof *own), err);
    for (int i = 0; i < own_count; i++) all[i] = own[i];
    for (int r = 1; r < trainer->comm->size && !e; r++)
        e = message_wait(trainer->comm, message_receive(&x, r, all + (int64_t)r * room,
                                                        (uint64_t)count[r] * sizeof *all),
                         err);
    return e;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

enum replicas_overlap { APART, SAME, ACROSS };

/* Whether two devices have the same elements of a tensor, none in common, or perhaps some (boxes cut differently). */
static enum replicas_overlap replicas_meet(const struct box_hash *a, const struct box_hash *b)
{
    bool same = true;
    if (a->index != b->index || a->kind != b->kind || a->whose != b->whose) return APART;
    for (int d = 0; d < TENSOR_MAX_DIMS; d++) {
        const struct interval x = { a->box.start[d], a->box.extent[d] }, y = { b->box.start[d], b->box.extent[d] };
        if ((x.count > 0 || y.count > 0) && interval_meet(x, y).count == 0) return APART;
        same = same && interval_equal(x, y);
    }
    if (same && interval_meet(a->kept, b->kept).count == 0) return APART;
    return same && interval_equal(a->kept, b->kept) ? SAME : ACROSS;
}

/* Report ERR_CHECK for a tensor whose copies differ: kind, name, both devices, and on which axes devices differ. */
static enum error_code replicas_say(const struct trainer *trainer, const struct box_hash *box_hash, int rank,
                                    const struct evidence *on, enum replicas_when when, struct error *err)
{
    static const char *const name[STATES_FROM] = { "weight", "gradient", "master of", "anchor of",
                                                   "outer momentum of" };
    char place[128], device[64];
    const char *kind = box_hash->kind < STATES_FROM ? name[box_hash->kind]
        : trainer->plan.optimizer->state_name[box_hash->kind - STATES_FROM];
    int other = 0;
    while (!devices_have(&on->failing, other)) other++;
    diagnose_place(place, sizeof place, &trainer->plan.mesh, on);
    return fail(err, ERR_CHECK,
                "step %lld, %s the optimizer: %s %s on device %d (%s) has other bits than its copy on device %d; they "
                "differ on %s",
                (long long)(trainer->step + (when == BEFORE_OPTIMIZER)), when == BEFORE_OPTIMIZER ? "before"
                    : "after", kind,
                trainer_spec(trainer, box_hash->index).name, other,
                mesh_describe(&trainer->plan.mesh, other, device, sizeof device), rank,
                place);
}

/* Compare each box with later ranks' copies of it.  If two devices have parts of a tensor that are cut differently,
 * by_value[] is set: the tensor is then compared element by element. */
static enum error_code compare_lists(const struct trainer *trainer, struct box_hash *all, const int *count, int room,
                                     enum replicas_when when, bool *by_value, uint64_t *compared, struct error *err)
{
    for (int r = 0; r < trainer->comm->size; r++)
        for (int i = 0; i < count[r]; i++) {
            const struct box_hash *mine = &all[(int64_t)r * room + i];
            struct evidence on = { .holding = { { 0 } } };
            devices_add(&on.holding, r);
            for (int other = r + 1; other < trainer->comm->size; other++)
                for (int k = 0; k < count[other]; k++) {
                    struct box_hash *copy = &all[(int64_t)other * room + k];
                    const enum replicas_overlap how = replicas_meet(mine, copy);
                    if (how == ACROSS) by_value[mine->index * MOST_KINDS + mine->kind] = true;
                    if (how != SAME) continue;
                    devices_add(&on.holding, other);
                    if (copy->bits != mine->bits) devices_add(&on.failing, other);
                    copy->copy = true;
                }
            if (devices_count(&on.failing) > 0) return replicas_say(trainer, mine, r, &on, when, err);
        }
    for (int r = 0; r < trainer->comm->size; r++)
        for (int i = 0; i < count[r]; i++) {
            const struct box_hash *b = &all[(int64_t)r * room + i];
            if (b->copy && !by_value[b->index * MOST_KINDS + b->kind]) *compared += (uint64_t)b->kept.count;
        }
    return OK;
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

/* One tensor on rank 0: each element from the first device that has it, and that device's rank + 1. */
struct whole {
    bool own;                           /* each replica that trains apart has its own */
    char *bits;                         /* [replicas][elements] */
    int32_t *from;
    int64_t elements;
    size_t size;
    const struct piece *piece;
    uint64_t compared;
    int first;                          /* the device from whose element another device's differs; -1: none found */
    struct evidence on;
};

/* Compare one run of a piece with what earlier devices have brought; an element that nobody brought is kept.  As
 * evidence count only differences from the device whose element differed first. */
static void compare_run(void *context, struct run run)
{
    struct whole *w = context;
    const int64_t at = (w->own ? w->piece->replica : 0) * w->elements + run.whole;
    for (int64_t i = 0; i < run.length; i++) {
        char *seen = w->bits + (size_t)(at + i) * w->size;
        const char *now = (const char *)w->piece->data.data + (size_t)(run.piece + i) * w->size;
        int32_t *from = &w->from[at + i];
        if (*from == 0) {
            memcpy(seen, now, w->size);
            *from = 1 + w->piece->rank;
            continue;
        }
        w->compared++;
        const bool differs = memcmp(seen, now, w->size) != 0;
        if (differs && w->first < 0) w->first = *from - 1;
        if (differs && w->first == *from - 1) devices_add(&w->on.failing, w->piece->rank);
    }
}

/* Enter one device's piece of the tensor; collect_pieces calls this on rank 0 in the order of ranks. */
static void compare_piece(void *context, const struct piece *piece)
{
    struct whole *w = context;
    w->piece = piece;
    if (piece->kept.count > 0) devices_add(&w->on.holding, piece->rank);
    layout_each_run_within(piece->layout, piece->kept.first, piece->kept.count, compare_run, w);
}

/* Compare one tensor element by element on rank 0. The call is collective: all devices send their pieces. */
static enum error_code compare_values(struct trainer *trainer, int index, int kind, enum replicas_when when,
                                      uint64_t *compared, struct error *err)
{
    const struct param_spec parameter = trainer_spec(trainer, index),
                            spec = data_spec(&trainer->data, &parameter, kind_of[kind]);
    struct whole w = { .own = is_a_replicas_own(trainer, kind_of[kind], when), .first = -1,
                       .elements = spec.dim[0] * (spec.ndim == 2 ? spec.dim[1] : 1),
                       .size = dtype_size(data_format(&trainer->data, kind_of[kind])) };
    /* bits [replicas, elements]: replicas that train apart have one row each. */
    const size_t room = (size_t)w.elements * (size_t)(w.own ? shards_replicas(&trainer->data.shards) : 1);
    enum error_code e = OK;
    if (trainer->comm->rank == 0) {
        w.bits = malloc(room * w.size + 1), w.from = calloc(room + 1, sizeof *w.from);
        if (w.bits == NULL || w.from == NULL)
            e = fail(err, ERR_MEMORY, "no memory to compare the copies of %s", spec.name);
    }
    e = comm_agree(trainer->comm, e, err);
    if (!e) collect_pieces(trainer, index, kind_of[kind], compare_piece, &w);
    if (!e && w.first >= 0) {
        const struct box_hash named = { .index = index, .kind = kind };
        e = replicas_say(trainer, &named, w.first, &w.on, when, err);
    }
    *compared += w.compared;
    free(w.bits), free(w.from);
    return comm_agree(trainer->comm, e, err);
}

/* Rank 0 knows the tensors to compare; all devices send their parts of these. */
static enum error_code compare_across(struct trainer *trainer, bool *by_value, enum replicas_when when,
                                      uint64_t *compared, struct error *err)
{
    const int tensors = model_param_count(&trainer->plan.model) * MOST_KINDS;
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    enum error_code e = OK;
    for (int r = 1; r < trainer->comm->size && trainer->comm->rank == 0 && !e; r++)
        e = message_wait(trainer->comm, message_send(&x, r, by_value, sizeof *by_value * (size_t)tensors), err);
    if (trainer->comm->rank != 0)
        e = message_wait(trainer->comm, message_receive(&x, 0, by_value, sizeof *by_value * (size_t)tensors), err);
    for (int i = 0; i < tensors && !e; i++)
        if (by_value[i]) e = compare_values(trainer, i / MOST_KINDS, i % MOST_KINDS, when, compared, err);
    return e;
}

/* Compare the hash of the routers' biases on all devices: every device moves all biases by itself.  The call is
 * collective. */
static enum error_code check_biases(struct trainer *trainer, struct error *err)
{
    const struct model_config *m = &trainer->plan.model;
    uint64_t all[MESH_MOST_LISTED], own = HASH_START;
    if (m->mlp != MLP_MIXTURE || !m->mixture.router.biased) return OK;
    own = hash_bytes(own, trainer->routers.bias, (size_t)(m->L * mixture_columns(&m->mixture)) * sizeof(double));
    enum error_code e = comm_bring(trainer->comm, &own, sizeof own, all, err);
    for (int r = 1; r < trainer->comm->size && trainer->comm->rank == 0 && !e; r++)
        if (all[r] != all[0])
            e = fail(err, ERR_CHECK, "the correction biases of routers differ between devices 0 and %d after step %lld",
                     r, (long long)trainer->step);
    return comm_agree(trainer->comm, e, err);
}

enum error_code replicas_check(struct trainer *trainer, enum replicas_when when, uint64_t *compared, struct error *err)
{
    const int tiles = trainer->plan.data.tiles > 1 ? trainer->plan.data.tiles : 1,
              tensors = model_param_count(&trainer->plan.model) * MOST_KINDS;
    /* A device lists at most so many boxes: each kind of each parameter, for each tile. */
    const int room = tensors * tiles * MOST_BOXES;
    const bool here = trainer->comm->rank == 0;
    struct box_hash *own = calloc((size_t)room, sizeof *own),
                    *all = here ? calloc((size_t)room * (size_t)trainer->comm->size, sizeof *all) : NULL;
    int *count = here ? calloc((size_t)trainer->comm->size, sizeof *count) : NULL;
    bool *by_value = calloc((size_t)tensors, sizeof *by_value);
    enum error_code e = own && by_value && (!here || (all && count))
                            ? OK
                            : fail(err, ERR_MEMORY, "no memory for the hashes of %d tensors", room);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = gather_lists(trainer, own, list_own(trainer, when, own), all, count, room, err);
    if (!e && here) e = compare_lists(trainer, all, count, room, when, by_value, compared, err);
    e = comm_agree(trainer->comm, e, err);
    /* Hashes are compared first; what is cut differently is sent and compared element by element. */
    if (!e) e = compare_across(trainer, by_value, when, compared, err);
    if (!e) e = check_biases(trainer, err);
    free(own), free(all), free(count), free(by_value);
    return e;
}
