#include "emulated_devices/schemes/spatial/walk.h"
#include <string.h>

static struct device *device_of(const struct walk *w) { return w->tiling->all.comm->device; }

int64_t walk_count(const int64_t size[WALK_DIMS])
{
    int64_t n = 1;
    for (int i = 0; i < WALK_DIMS; i++) n *= size[i];
    return n;
}

/* The elements of a block with another extent of one dimension. */
static int64_t count_with(const int64_t size[WALK_DIMS], int dimension, int64_t extent)
{
    int64_t other[WALK_DIMS];
    memcpy(other, size, sizeof other);
    other[dimension] = extent;
    return walk_count(other);
}

struct walk walk_from(struct tiling *t, struct account *cost, const int64_t size[WALK_DIMS], struct tensor at,
                      struct error *err)
{
    struct walk w = { .tiling = t, .cost = cost, .err = err, .at = at };
    memcpy(w.size, size, sizeof w.size);
    return w;
}

struct tensor walk_room(struct walk *w, int64_t count)
{
    const struct tensor t = device_tensor_in(device_of(w), BUFFERS, F64, count > 0 ? count : 1);
    if (t.data == NULL) w->e = fail(w->err, ERR_MEMORY, "no memory for %lld numbers of a tile", (long long)count);
    return t;
}

static void leave(struct walk *w)
{
    if (w->owned && w->at.data) device_free(device_of(w), w->at);
    w->owned = false, w->at = tensor_none;
}

void walk_on(struct walk *w, const int64_t size[WALK_DIMS], struct tensor next)
{
    leave(w);
    memcpy(w->size, size, sizeof w->size);
    w->at = next, w->owned = w->cost == NULL;
}

void walk_pack(struct walk *w, const int64_t size[WALK_DIMS], struct tensor block, int dimension, struct interval some,
               char *packed, bool back)
{
    int64_t before = 1, after = 1;
    for (int i = 0; i < dimension; i++) before *= size[i];
    for (int i = dimension + 1; i < WALK_DIMS; i++) after *= size[i];
    const uint64_t element = (uint64_t)after * sizeof(double), width = (uint64_t)some.count * element,
                   pitch = (uint64_t)size[dimension] * element;
    char *const at = (char *)block.data + (uint64_t)some.first * element;
    if (width == 0 || before == 0) return;
    if (back) device_copy_rows(device_of(w), at, pitch, packed, width, width, before);
    else device_copy_rows(device_of(w), packed, width, at, pitch, width, before);
}

/* Run or foresee a collective from one packed block to another. */
static void run(struct walk *w, struct group *g, enum operation op, struct collective c)
{
    c.dtype = F64;
    if (w->cost) account_add(w->cost, group_cost(g, op, NULL, &c), 1);
    else w->e = collective_run(g, op, NULL, &c, w->err);
}

static bool goes_on(const struct walk *w) { return !w->e; }

/* Pack dimension `dimension` of the block part by part, or unpack it. */
static void pack_parts(struct walk *w, const int64_t size[], struct tensor block, int dimension, int parts,
                       struct tensor packed, bool back)
{
    char *at = packed.data;
    for (int i = 0; i < parts; i++) {
        const struct interval part = block_at(size[dimension], parts, i);
        walk_pack(w, size, block, dimension, part, at, back);
        at += (uint64_t)count_with(size, dimension, part.count) * sizeof(double);
    }
}

void walk_turn(struct walk *w, enum tile_axis axis, int split, int join, int64_t whole)
{
    struct group *const g = &w->tiling->along[axis];
    int64_t give[MESH_MOST_DEVICES], take[MESH_MOST_DEVICES], size[WALK_DIMS];
    memcpy(size, w->size, sizeof size);
    /* A device gives away the other parts of `split` and gets those of `join`, which becomes whole. */
    size[split] = tiling_part(w->tiling, axis, w->size[split]).count, size[join] = whole;
    for (int i = 0; i < g->size; i++) {
        give[i] = count_with(w->size, split, block_at(w->size[split], g->size, i).count);
        take[i] = count_with(size, join, block_at(whole, g->size, i).count);
    }
    const struct collective c = { .counts = give, .recvcounts = take };
    if (w->cost) { run(w, g, ALLTOALL, c); walk_on(w, size, tensor_none); return; }
    struct tensor out = tensor_none, in = tensor_none, next = tensor_none;
    if (goes_on(w)) out = walk_room(w, walk_count(w->size));
    if (goes_on(w)) in = walk_room(w, walk_count(size));
    if (goes_on(w)) next = walk_room(w, walk_count(size));
    if (goes_on(w)) {
        pack_parts(w, w->size, w->at, split, g->size, out, false);
        run(w, g, ALLTOALL, (struct collective){ .in = out.data, .out = in.data, .counts = give, .recvcounts = take });
    }
    if (goes_on(w)) pack_parts(w, size, next, join, g->size, in, true);
    if (out.data) device_free(device_of(w), out);
    if (in.data) device_free(device_of(w), in);
    walk_on(w, size, next);
}

void walk_reduce_scatter(struct walk *w, enum tile_axis axis, int dimension)
{
    struct group *const g = &w->tiling->along[axis];
    int64_t counts[MESH_MOST_DEVICES], size[WALK_DIMS];
    memcpy(size, w->size, sizeof size);
    size[dimension] = tiling_part(w->tiling, axis, w->size[dimension]).count;
    for (int i = 0; i < g->size; i++)
        counts[i] = count_with(w->size, dimension, block_at(w->size[dimension], g->size, i).count);
    struct collective c = { .counts = counts, .reduction = SUM };
    struct tensor out = tensor_none, next = tensor_none;
    if (goes_on(w) && !w->cost) out = walk_room(w, walk_count(w->size));
    if (goes_on(w) && !w->cost) next = walk_room(w, walk_count(size));
    if (goes_on(w) && !w->cost) pack_parts(w, w->size, w->at, dimension, g->size, out, false);
    c.in = out.data, c.out = next.data;
    if (goes_on(w)) run(w, g, REDUCE_SCATTER, c);
    if (out.data) device_free(device_of(w), out);
    walk_on(w, size, next);
}

void walk_allgather(struct walk *w, enum tile_axis axis, int dimension, int64_t whole)
{
    struct group *const g = &w->tiling->along[axis];
    int64_t counts[MESH_MOST_DEVICES], size[WALK_DIMS];
    memcpy(size, w->size, sizeof size);
    size[dimension] = whole;
    for (int i = 0; i < g->size; i++) counts[i] = count_with(size, dimension, block_at(whole, g->size, i).count);
    struct collective c = { .in = w->at.data, .counts = counts };
    struct tensor in = tensor_none, next = tensor_none;
    if (goes_on(w) && !w->cost) in = walk_room(w, walk_count(size));
    if (goes_on(w) && !w->cost) next = walk_room(w, walk_count(size));
    c.out = in.data;
    if (goes_on(w)) run(w, g, ALLGATHER, c);
    if (goes_on(w) && !w->cost) pack_parts(w, size, next, dimension, g->size, in, true);
    if (in.data) device_free(device_of(w), in);
    walk_on(w, size, next);
}

struct walk_views walk_compute(struct walk *w, const int64_t size[WALK_DIMS])
{
    const int64_t from = walk_count(w->size), to = walk_count(size);
    struct walk_views v = { .views = views_of(device_of(w)) };
    struct tensor next = tensor_none;
    if (goes_on(w) && !w->cost) next = walk_room(w, to);
    /* The old block stays until walk_computed, since the computation reads it. */
    w->old = w->at, w->owned_old = w->owned, w->owned = false;
    walk_on(w, size, next);
    if (next.data == NULL || from == 0 || to == 0) {
        if (next.data != NULL && to > 0) device_zero(device_of(w), tensor_1d(next.data, F64, to));
        walk_computed(w, &v);
        return v;
    }
    v.from = view_read(&v.views, tensor_1d(w->old.data, F64, from)).data;
    v.to = view_write(&v.views, tensor_1d(next.data, F64, to)).data;
    return v;
}

void walk_computed(struct walk *w, struct walk_views *v)
{
    views_end(&v->views);
    if (w->owned_old && w->old.data) device_free(device_of(w), w->old);
    w->old = tensor_none, w->owned_old = false, v->to = NULL;
}

enum error_code walk_to(struct walk *w, struct tensor out)
{
    if (goes_on(w) && !w->cost && walk_count(w->size) > 0)
        device_copy(device_of(w), out.data, w->at.data, (uint64_t)walk_count(w->size) * sizeof(double));
    leave(w);
    return w->e;
}
