/* boxing_run.c -- taking the journey. */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/sbp/boxing.h"
#include <stdlib.h>

enum error_code placement_open(struct placement *p, struct comm *comm, const struct sbp_mesh *m, struct error *err)
{
    const int n = sbp_devices(m), self = comm->rank;
    int *rank = calloc((size_t)n, sizeof *rank);
    *p = (struct placement){ .mesh = *m };
    if (rank == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", n);
    for (int d = 0; d < n; d++) rank[d] = d;
    enum error_code e = group_of(&p->all, comm, rank, n, TRAFFIC_OTHER, 0, err);
    for (int k = 0; k < m->axes && !e; k++) {
        int size = 0;
        for (int d = 0; d < n; d++)
            /* The group along axis k has the devices whose place on the other axis is the same. */
            if (m->axes == 1 || sbp_place(m, d, 1 - k) == sbp_place(m, self, 1 - k)) rank[size++] = d;
        e = group_of(&p->along[k], comm, rank, size, TRAFFIC_OTHER, 0, err);
    }
    free(rank);
    if (e) placement_close(p);
    return e;
}

void placement_close(struct placement *p)
{
    group_close(&p->all);
    for (int k = 0; k < SBP_AXES; k++) group_close(&p->along[k]);
}

struct tensor piece_make(struct device *d, const struct shape *t, const struct sbp_mesh *m, struct signature s,
                         int device)
{
    return device_tensor_1d(d, BUFFERS, box_count(signature_box(t, m, s, device), t->ndim));
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

static size_t element(const struct move *m) { return dtype_size(m->from.dtype); }

/* ---- one part to many -------------------------------------------------------------------------------------------- */

/* A device packs what it gives each member, and what it takes, one after another in the order of members. */
struct parcels { int64_t *given, *taken; struct tensor out, in; };

static enum error_code parcels_make(struct parcels *p, const struct move *m, const struct group *g, struct error *err)
{
    int64_t sends = 0, takes = 0;
    *p = (struct parcels){ .given = calloc((size_t)g->size, sizeof *p->given),
                           .taken = calloc((size_t)g->size, sizeof *p->taken) };
    for (int i = 0; p->given && p->taken && i < g->size; i++) {
        sends += p->given[i] =
            box_count(boxing_parcel(m->shape, &m->place->mesh, m->step, m->self, g->member[i]), m->shape->ndim);
        takes += p->taken[i] =
            box_count(boxing_parcel(m->shape, &m->place->mesh, m->step, g->member[i], m->self), m->shape->ndim);
    }
    p->out = device_tensor_in(m->device, BUFFERS, m->from.dtype, sends);
    p->in = device_tensor_in(m->device, BUFFERS, m->from.dtype, takes);
    return p->given && p->taken && p->out.data && p->in.data
               ? OK
               : fail(err, ERR_MEMORY, "no memory to pack %lld elements", (long long)(sends + takes));
}

static void parcels_free(struct parcels *p, struct device *d)
{
    free(p->given), free(p->taken);
    device_free(d, p->out);
    device_free(d, p->in);
}

static void pack_all(const struct move *m, const struct group *g, const struct parcels *p)
{
    struct views v = views_of(m->device);
    const void *from = view_read(&v, m->from).data;
    char *at = view_write(&v, p->out).data;
    for (int i = 0; i < g->size; at += (size_t)p->given[i] * element(m), i++)
        box_pack(m->shape->ndim, m->old, boxing_parcel(m->shape, &m->place->mesh, m->step, m->self, g->member[i]), from,
                 at, element(m));
    views_end(&v);
}

static void unpack_all(const struct move *m, const struct group *g, const struct parcels *p)
{
    struct views v = views_of(m->device);
    const char *at = view_read(&v, p->in).data;
    void *to = view_write(&v, m->to).data;
    for (int i = 0; i < g->size; at += (size_t)p->taken[i] * element(m), i++)
        box_unpack(m->shape->ndim, m->new, boxing_parcel(m->shape, &m->place->mesh, m->step, g->member[i], m->self), to,
                   at, element(m));
    views_end(&v);
}

static enum error_code redistribute(struct move *m, struct error *err)
{
    const struct signature s = m->step->from;
    /* Devices with different partial sums must not mix, so along that axis nothing moves. */
    struct group *g = s.on[0].kind == SBP_P   ? &m->place->along[1]
                      : s.on[1].kind == SBP_P ? &m->place->along[0]
                                              : &m->place->all;
    struct parcels p;
    enum error_code e = group_agree(g, parcels_make(&p, m, g, err), err);
    if (!e) {
        const struct collective c = {
            .in = p.out.data, .out = p.in.data, .counts = p.given, .recvcounts = p.taken, .dtype = m->from.dtype
        };
        pack_all(m, g, &p);
        e = collective_run(g, ALLTOALL, "linear", &c, err);
        if (!e) unpack_all(m, g, &p);
    }
    parcels_free(&p, m->device);
    return e;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* The parts of the group's members are packed one after another: blocks of one reduce-scatter. */
static enum error_code sum_and_split(struct move *m, struct error *err)
{
    struct group *g = &m->place->along[m->step->axis];
    const int64_t all = box_count(m->old, m->shape->ndim);
    int64_t *count = calloc((size_t)g->size, sizeof *count);
    const struct tensor packed = device_tensor_in(m->device, BUFFERS, m->from.dtype, all);
    struct views v = views_of(m->device);
    char *at = view_write(&v, packed).data;
    const void *from = view_read(&v, m->from).data;
    enum error_code e = group_agree(
        g, count && packed.data ? OK : fail(err, ERR_MEMORY, "no memory to pack %lld elements", (long long)all), err);
    /* Member i's new part is block i of the reduce-scatter. */
    for (int i = 0; i < g->size && !e; at += (size_t)count[i] * element(m), i++) {
        const struct box b = signature_box(m->shape, &m->place->mesh, m->step->to, g->member[i]);
        count[i] = box_count(b, m->shape->ndim);
        box_pack(m->shape->ndim, m->old, b, from, at, element(m));
    }
    views_end(&v);
    const struct collective c = {
        .in = packed.data, .out = m->to.data, .count = all, .counts = count, .dtype = m->from.dtype, .reduction = SUM
    };
    if (!e) e = collective_run(g, REDUCE_SCATTER, "ring", &c, err);
    device_free(m->device, packed);
    free(count);
    return e;
}

static enum error_code sum_all(struct move *m, struct error *err)
{
    device_copy(m->device, m->to.data, m->from.data, tensor_bytes(m->from));
    return allreduce(&m->place->along[m->step->axis], m->to.data, tensor_count(m->to), m->to.dtype, SUM, "ring", err);
}

static void unpack_own(const struct move *m)
{
    struct views v = views_of(m->device);
    box_unpack(m->shape->ndim, m->new, m->old, view_write(&v, m->to).data, view_read(&v, m->from).data, element(m));
    views_end(&v);
}

/* B: the first has it, the others zeros.  S: each has its part among zeros.  Nothing is sent. */
static enum error_code make_partial(struct move *m, struct error *err)
{
    (void)err;
    const int k = m->step->axis;
    device_zero(m->device, m->to);
    if (m->step->from.on[k].kind == SBP_S || sbp_place(&m->place->mesh, m->self, k) == 0)
        unpack_own(m);
    return OK;
}

/* ---- the journey ------------------------------------------------------------------------------------------------- */

static enum error_code take_step(struct placement *p, const struct shape *t, const struct boxing_step *s,
                                 struct tensor *piece, struct error *err)
{
    static enum error_code (*const run[])(struct move *, struct error *) = {
        [REDISTRIBUTE] = redistribute, [SUM_AND_SPLIT] = sum_and_split, [SUM_ALL] = sum_all,
            [MAKE_PARTIAL] = make_partial,
    };
    const int self = p->all.comm->rank;
    struct device *d = p->all.comm->device;
    struct move m = { p,
                      t,
                      s,
                      d,
                      signature_box(t, &p->mesh, s->from, self),
                      signature_box(t, &p->mesh, s->to, self),
                      *piece,
                      piece_make(d, t, &p->mesh, s->to, self),
                      self };
    enum error_code e =
        group_agree(&p->all, m.to.data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for a new part"),
                    err);
    if (!e) e = group_agree(&p->all, run[s->kind](&m, err), err);
    /* The step replaces the piece; after an error the old one is still the caller's. */
    device_free(d, e ? m.to : m.from);
    if (!e) *piece = m.to;
    return e;
}

enum error_code boxing_run(struct placement *p, const struct shape *t, const struct boxing *b, struct tensor *piece,
                           struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < b->steps && !e; i++) e = take_step(p, t, &b->step[i], piece, err);
    return e;
}
