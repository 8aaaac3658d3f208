/* boxing_run.c -- moves pieces of a tensor by the steps that boxing.c has found.
 *
 * assign_run.c and trial.c call it on every device of the placement; boxing_run is collective, and the other functions
 * are local.  Numbers are those of the device's format.  An error, ERR_MEMORY or ERR_COMM, is the same on every device.
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/sbp/boxing.h"
#include <stdlib.h>

enum error_code placement_open(struct placement *placement, struct comm *comm, const struct sbp_mesh *sbp_mesh,
                               struct error *err)
{
    const int n = sbp_devices(sbp_mesh), self = comm->rank;
    int *rank = calloc((size_t)n, sizeof *rank);
    *placement = (struct placement){ .mesh = *sbp_mesh };
    if (rank == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", n);
    /* The first n devices of the job are the mesh, row by row. */
    for (int d = 0; d < n; d++) rank[d] = d;
    enum error_code e = group_of(&placement->all, comm, rank, n, TRAFFIC_OTHER, 0, err);
    for (int k = 0; k < sbp_mesh->axes && !e; k++) {
        int size = 0;
        for (int d = 0; d < n; d++)
            /* The group along axis k has the devices whose place on the other axis is the same. */
            if (sbp_mesh->axes == 1 || sbp_place(sbp_mesh, d, 1 - k) == sbp_place(sbp_mesh, self, 1 - k))
                rank[size++] = d;
        e = group_of(&placement->along[k], comm, rank, size, TRAFFIC_OTHER, 0, err);
    }
    free(rank);
    /* Groups that were opened are closed, and nothing is left to the caller. */
    if (e) placement_close(placement);
    return e;
}

void placement_close(struct placement *placement)
{
    group_close(&placement->all);
    for (int k = 0; k < SBP_AXES; k++) group_close(&placement->along[k]);
}

struct tensor piece_make(struct device *d, const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                         struct signature signature, int device)
{
    return device_tensor_1d(d, BUFFERS, box_count(signature_box(shape, sbp_mesh, signature, device), shape->ndim));
}

/* Everything about one step on this device. */
struct move {
    struct placement *place;
    const struct shape *shape;
    const struct boxing_step *step;
    struct device *device;
    struct box old, new;
    struct tensor from, to;
    int self;
};

static size_t boxing_run_element(const struct move *move) { return dtype_size(move->from.dtype); }

/* ---- one part to many -------------------------------------------------------------------------------------------- */

/* A device packs what it gives each member, and what it takes, one after another in the order of members. */
struct parcels { int64_t *given, *taken; struct tensor out, in; };

/* Count what this device gives each member and takes from each, and open both buffers.  parcels_free is due also after
 * an error. */
static enum error_code parcels_make(struct parcels *parcels, const struct move *move, const struct group *group,
                                    struct error *err)
{
    int64_t sends = 0, takes = 0;
    *parcels = (struct parcels){ .given = calloc((size_t)group->size, sizeof *parcels->given),
                           .taken = calloc((size_t)group->size, sizeof *parcels->taken) };
    for (int i = 0; parcels->given && parcels->taken && i < group->size; i++) {
        sends += parcels->given[i] =
            box_count(boxing_parcel(move->shape, &move->place->mesh, move->step, move->self, group->member[i]),
                      move->shape->ndim);
        takes += parcels->taken[i] =
            box_count(boxing_parcel(move->shape, &move->place->mesh, move->step, group->member[i], move->self),
                      move->shape->ndim);
    }
    parcels->out = device_tensor_in(move->device, BUFFERS, move->from.dtype, sends);
    parcels->in = device_tensor_in(move->device, BUFFERS, move->from.dtype, takes);
    return parcels->given && parcels->taken && parcels->out.data && parcels->in.data
               ? OK
               : fail(err, ERR_MEMORY, "no memory to pack %lld elements", (long long)(sends + takes));
}

static void parcels_free(struct parcels *parcels, struct device *device)
{
    free(parcels->given), free(parcels->taken);
    device_free(device, parcels->out);
    device_free(device, parcels->in);
}

/* Copy the parts of the old piece that each member asks for, one after another. */
static void pack_all(const struct move *move, const struct group *group, const struct parcels *parcels)
{
    struct views v = views_of(move->device);
    const void *from = view_read(&v, move->from).data;
    char *at = view_write(&v, parcels->out).data;
    for (int i = 0; i < group->size; at += (size_t)parcels->given[i] * boxing_run_element(move), i++)
        box_pack(move->shape->ndim, move->old, boxing_parcel(move->shape, &move->place->mesh, move->step, move->self,
                                                             group->member[i]), from,
                 at, boxing_run_element(move));
    views_end(&v);
}

/* Put the parts that came into the new piece; they do not overlap. */
static void unpack_all(const struct move *move, const struct group *group, const struct parcels *parcels)
{
    struct views v = views_of(move->device);
    const char *at = view_read(&v, parcels->in).data;
    void *to = view_write(&v, move->to).data;
    for (int i = 0; i < group->size; at += (size_t)parcels->taken[i] * boxing_run_element(move), i++)
        box_unpack(move->shape->ndim, move->new, boxing_parcel(move->shape, &move->place->mesh, move->step,
                                                               group->member[i], move->self), to,
                   at, boxing_run_element(move));
    views_end(&v);
}

/* Carry out REDISTRIBUTE by one all-to-all of parcels.  Collective over the group within which whole parts move. */
static enum error_code redistribute(struct move *move, struct error *err)
{
    const struct signature s = move->step->from;
    /* Devices with different partial sums must not mix, so along that axis nothing moves. */
    struct group *g = s.on[0].kind == SBP_P   ? &move->place->along[1]
                      : s.on[1].kind == SBP_P ? &move->place->along[0]
                                              : &move->place->all;
    struct parcels p;
    enum error_code e = group_agree(g, parcels_make(&p, move, g, err), err);
    if (!e) {
        const struct collective c = {
            .in = p.out.data, .out = p.in.data, .counts = p.given, .recvcounts = p.taken, .dtype = move->from.dtype
        };
        /* Every member has memory now, so all of them enter the all-to-all. */
        pack_all(move, g, &p);
        e = collective_run(g, ALLTOALL, "linear", &c, err);
        if (!e) unpack_all(move, g, &p);
    }
    parcels_free(&p, move->device);
    return e;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* The parts of the group's members are packed one after another: blocks of one reduce-scatter. */
static enum error_code sum_and_split(struct move *move, struct error *err)
{
    struct group *g = &move->place->along[move->step->axis];
    const int64_t all = box_count(move->old, move->shape->ndim);
    int64_t *count = calloc((size_t)g->size, sizeof *count);
    const struct tensor packed = device_tensor_in(move->device, BUFFERS, move->from.dtype, all);
    /* Views stay open while the host packs, and end before the collective reads the memory. */
    struct views v = views_of(move->device);
    char *at = view_write(&v, packed).data;
    const void *from = view_read(&v, move->from).data;
    enum error_code e = group_agree(
        g, count && packed.data ? OK : fail(err, ERR_MEMORY, "no memory to pack %lld elements", (long long)all), err);
    /* Member i's new part is block i of the reduce-scatter. */
    for (int i = 0; i < g->size && !e; at += (size_t)count[i] * boxing_run_element(move), i++) {
        const struct box b = signature_box(move->shape, &move->place->mesh, move->step->to, g->member[i]);
        count[i] = box_count(b, move->shape->ndim);
        box_pack(move->shape->ndim, move->old, b, from, at, boxing_run_element(move));
    }
    views_end(&v);
    const struct collective c = {
        .in = packed.data, .out = move->to.data, .count = all, .counts = count, .dtype = move->from.dtype,
            .reduction = SUM
    };
    if (!e) e = collective_run(g, REDUCE_SCATTER, "ring", &c, err);
    device_free(move->device, packed);
    free(count);
    return e;
}

/* SUM_ALL: the sum over the group replaces each member's part; the shape stays. */
static enum error_code sum_all(struct move *move, struct error *err)
{
    device_copy(move->device, move->to.data, move->from.data, tensor_bytes(move->from));
    return allreduce(&move->place->along[move->step->axis], move->to.data, tensor_count(move->to), move->to.dtype, SUM,
                     "ring", err);
}

/* Copy this device's old part to its place in the new piece. */
static void unpack_own(const struct move *move)
{
    struct views v = views_of(move->device);
    box_unpack(move->shape->ndim, move->new, move->old, view_write(&v, move->to).data, view_read(&v, move->from).data,
               boxing_run_element(move));
    views_end(&v);
}

/* B: the first has it, the others zeros.  S: each has its part among zeros.  Nothing is sent. */
static enum error_code make_partial(struct move *move, struct error *err)
{
    (void)err;
    const int k = move->step->axis;
    device_zero(move->device, move->to);
    if (move->step->from.on[k].kind == SBP_S || sbp_place(&move->place->mesh, move->self, k) == 0)
        unpack_own(move);
    return OK;
}

/* ---- the journey ------------------------------------------------------------------------------------------------- */

/* Take one step: open the new piece, run the step's kind, replace the piece.  Collective over the placement. */
static enum error_code take_step(struct placement *placement, const struct shape *shape, const struct boxing_step *step,
                                 struct tensor *piece, struct error *err)
{
    static enum error_code (*const run[])(struct move *, struct error *) = {
        [REDISTRIBUTE] = redistribute, [SUM_AND_SPLIT] = sum_and_split, [SUM_ALL] = sum_all,
            [MAKE_PARTIAL] = make_partial,
    };
    const int self = placement->all.comm->rank;
    struct device *d = placement->all.comm->device;
    struct move m = { placement,
                      shape,
                      step,
                      d,
                      signature_box(shape, &placement->mesh, step->from, self),
                      signature_box(shape, &placement->mesh, step->to, self),
                      *piece,
                      piece_make(d, shape, &placement->mesh, step->to, self),
                      self };
    enum error_code e =
        group_agree(&placement->all, m.to.data ? OK
                    : fail(err, ERR_MEMORY, "the machine has no memory left for a new part"), err);
    if (!e) e = group_agree(&placement->all, run[step->kind](&m, err), err);
    /* The step replaces the piece; after an error the old one is still the caller's. */
    device_free(d, e ? m.to : m.from);
    if (!e) *piece = m.to;
    return e;
}

enum error_code boxing_run(struct placement *placement, const struct shape *shape, const struct boxing *boxing,
                           struct tensor *piece, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < boxing->steps && !e; i++) e = take_step(placement, shape, &boxing->step[i], piece, err);
    return e;
}
