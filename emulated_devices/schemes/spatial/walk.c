/* walk.c -- the steps of a walk: exchanges of a block's dimensions, and the place for a computation between.
 *
 * transforms.c, convolution.c and score.c build each operation out of these steps.  Exchanges are collective over the
 * devices of an axis.  The first error stays in walk->e: later steps do nothing, and walk_to returns this error.
 */
#include "emulated_devices/schemes/spatial/walk.h"
#include <string.h>

static struct device *walk_device_of(const struct walk *walk) { return walk->tiling->all.comm->device; }

/* The result is the number of elements of a block of this size. */
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

struct walk walk_from(struct tiling *tiling, struct account *cost, const int64_t size[WALK_DIMS], struct tensor at,
                      struct error *err)
{
    struct walk w = { .tiling = tiling, .cost = cost, .err = err, .at = at };
    memcpy(w.size, size, sizeof w.size);
    return w;
}

struct tensor walk_room(struct walk *walk, int64_t count)
{
    /* An empty block has memory, too, so .data NULL always means an error. */
    const struct tensor t = device_tensor_in(walk_device_of(walk), BUFFERS, F64, count > 0 ? count : 1);
    if (t.data == NULL) walk->e = fail(walk->err, ERR_MEMORY, "no memory for %lld numbers of a tile", (long long)count);
    return t;
}

/* A block of the caller's is not freed. */
static void walk_leave(struct walk *walk)
{
    if (walk->owned && walk->at.data) device_free(walk_device_of(walk), walk->at);
    walk->owned = false, walk->at = tensor_none;
}

/* In a cost walk there are no numbers, so the walk owns none. */
void walk_on(struct walk *walk, const int64_t size[WALK_DIMS], struct tensor next)
{
    walk_leave(walk);
    memcpy(walk->size, size, sizeof walk->size);
    walk->at = next, walk->owned = walk->cost == NULL;
}

void walk_pack(struct walk *walk, const int64_t size[WALK_DIMS], struct tensor block, int dimension,
               struct interval some, char *packed, bool back)
{
    int64_t before = 1, after = 1;
    for (int i = 0; i < dimension; i++) before *= size[i];
    for (int i = dimension + 1; i < WALK_DIMS; i++) after *= size[i];
    /* The block is [before, size[dimension], after]: `before` rows of `width` bytes are copied, `pitch` bytes apart. */
    const uint64_t element = (uint64_t)after * sizeof(double), width = (uint64_t)some.count * element,
                   pitch = (uint64_t)size[dimension] * element;
    char *const at = (char *)block.data + (uint64_t)some.first * element;
    if (width == 0 || before == 0) return;
    if (back) device_copy_rows(walk_device_of(walk), at, pitch, packed, width, width, before);
    else device_copy_rows(walk_device_of(walk), packed, width, at, pitch, width, before);
}

/* Run or foresee a collective from one packed block to another. */
static void spatial_walk_run(struct walk *walk, struct group *group, enum operation op, struct collective collective)
{
    collective.dtype = F64;
    if (walk->cost) account_add(walk->cost, group_cost(group, op, NULL, &collective), 1);
    else walk->e = collective_run(group, op, NULL, &collective, walk->err);
}

static bool goes_on(const struct walk *walk) { return !walk->e; }

/* Pack dimension `dimension` of the block part by part, or unpack it. */
static void pack_parts(struct walk *walk, const int64_t size[], struct tensor block, int dimension, int parts,
                       struct tensor packed, bool back)
{
    char *at = packed.data;
    for (int i = 0; i < parts; i++) {
        const struct interval part = block_at(size[dimension], parts, i);
        walk_pack(walk, size, block, dimension, part, at, back);
        at += (uint64_t)count_with(size, dimension, part.count) * sizeof(double);
    }
}

void walk_turn(struct walk *walk, enum tile_axis axis, int split, int join, int64_t whole)
{
    struct group *const g = &walk->tiling->along[axis];
    int64_t give[MESH_MOST_LISTED], take[MESH_MOST_LISTED], size[WALK_DIMS];
    memcpy(size, walk->size, sizeof size);
    /* A device gives away the other parts of `split` and gets those of `join`, which becomes whole. */
    size[split] = tiling_part(walk->tiling, axis, walk->size[split]).count, size[join] = whole;
    for (int i = 0; i < g->size; i++) {
        give[i] = count_with(walk->size, split, block_at(walk->size[split], g->size, i).count);
        take[i] = count_with(size, join, block_at(whole, g->size, i).count);
    }
    /* A cost walk needs only the counts. */
    const struct collective c = { .counts = give, .recvcounts = take };
    if (walk->cost) { spatial_walk_run(walk, g, ALLTOALL, c); walk_on(walk, size, tensor_none); return; }
    struct tensor out = tensor_none, in = tensor_none, next = tensor_none;
    /* `out` has the parts to send one after another, `in` the parts that arrive, `next` the new block. */
    if (goes_on(walk)) out = walk_room(walk, walk_count(walk->size));
    if (goes_on(walk)) in = walk_room(walk, walk_count(size));
    if (goes_on(walk)) next = walk_room(walk, walk_count(size));
    if (goes_on(walk)) {
        pack_parts(walk, walk->size, walk->at, split, g->size, out, false);
        spatial_walk_run(walk, g, ALLTOALL, (struct collective){ .in = out.data, .out = in.data, .counts = give,
                                                                .recvcounts = take });
    }
    if (goes_on(walk)) pack_parts(walk, size, next, join, g->size, in, true);
    if (out.data) device_free(walk_device_of(walk), out);
    if (in.data) device_free(walk_device_of(walk), in);
    walk_on(walk, size, next);
}

void walk_reduce_scatter(struct walk *walk, enum tile_axis axis, int dimension)
{
    struct group *const g = &walk->tiling->along[axis];
    int64_t counts[MESH_MOST_LISTED], size[WALK_DIMS];
    memcpy(size, walk->size, sizeof size);
    /* Member i of the axis gets the sum of part i of the dimension. */
    size[dimension] = tiling_part(walk->tiling, axis, walk->size[dimension]).count;
    for (int i = 0; i < g->size; i++)
        counts[i] = count_with(walk->size, dimension, block_at(walk->size[dimension], g->size, i).count);
    struct collective c = { .counts = counts, .reduction = SUM };
    struct tensor out = tensor_none, next = tensor_none;
    if (goes_on(walk) && !walk->cost) out = walk_room(walk, walk_count(walk->size));
    if (goes_on(walk) && !walk->cost) next = walk_room(walk, walk_count(size));
    if (goes_on(walk) && !walk->cost) pack_parts(walk, walk->size, walk->at, dimension, g->size, out, false);
    c.in = out.data, c.out = next.data;
    if (goes_on(walk)) spatial_walk_run(walk, g, REDUCE_SCATTER, c);
    if (out.data) device_free(walk_device_of(walk), out);
    walk_on(walk, size, next);
}

void walk_allgather(struct walk *walk, enum tile_axis axis, int dimension, int64_t whole)
{
    struct group *const g = &walk->tiling->along[axis];
    int64_t counts[MESH_MOST_LISTED], size[WALK_DIMS];
    memcpy(size, walk->size, sizeof size);
    size[dimension] = whole;
    for (int i = 0; i < g->size; i++) counts[i] = count_with(size, dimension, block_at(whole, g->size, i).count);
    struct collective c = { .in = walk->at.data, .counts = counts };
    struct tensor in = tensor_none, next = tensor_none;
    if (goes_on(walk) && !walk->cost) in = walk_room(walk, walk_count(size));
    if (goes_on(walk) && !walk->cost) next = walk_room(walk, walk_count(size));
    c.out = in.data;
    /* The parts arrive one after another and are then laid into the dimension. */
    if (goes_on(walk)) spatial_walk_run(walk, g, ALLGATHER, c);
    if (goes_on(walk) && !walk->cost) pack_parts(walk, size, next, dimension, g->size, in, true);
    if (in.data) device_free(walk_device_of(walk), in);
    walk_on(walk, size, next);
}

struct walk_views walk_compute(struct walk *walk, const int64_t size[WALK_DIMS])
{
    /* An operation reads `from` numbers and writes `to` numbers. */
    const int64_t from = walk_count(walk->size), to = walk_count(size);
    struct walk_views v = { .views = views_of(walk_device_of(walk)) };
    struct tensor next = tensor_none;
    if (goes_on(walk) && !walk->cost) next = walk_room(walk, to);
    /* The old block stays until walk_computed, since the computation reads it. */
    walk->old = walk->at, walk->owned_old = walk->owned, walk->owned = false;
    walk_on(walk, size, next);
    /* Nothing is computed in a cost walk, after an error, without fields, or on a device without numbers. */
    if (next.data == NULL || from == 0 || to == 0 || !walk_device_of(walk)->backend->has_numbers) {
        if (next.data != NULL && to > 0) device_zero(walk_device_of(walk), tensor_1d(next.data, F64, to));
        walk_computed(walk, &v);
        return v;
    }
    /* The operations of ref/sphere compute on the host, so both blocks are viewed there. */
    v.from = view_read(&v.views, tensor_1d(walk->old.data, F64, from)).data;
    v.to = view_write(&v.views, tensor_1d(next.data, F64, to)).data;
    return v;
}

/* The views must end before the old block is freed, because both views lie in device memory. */
void walk_computed(struct walk *walk, struct walk_views *views)
{
    views_end(&views->views);
    if (walk->owned_old && walk->old.data) device_free(walk_device_of(walk), walk->old);
    walk->old = tensor_none, walk->owned_old = false, views->to = NULL;
}

void walk_charge(struct walk *walk, const char *what, double flops, int64_t numbers)
{
    if (walk->cost || walk->e || numbers == 0) return;
    const struct op_cost cost = { .flops = flops, .bytes = (double)numbers * sizeof(double) };
    device_charge(walk_device_of(walk), what, cost);
}

/* The walk ends here in every case, also after an error. */
enum error_code walk_to(struct walk *walk, struct tensor out)
{
    if (goes_on(walk) && !walk->cost && walk_count(walk->size) > 0)
        device_copy(walk_device_of(walk), out.data, walk->at.data, (uint64_t)walk_count(walk->size) * sizeof(double));
    walk_leave(walk);
    return walk->e;
}
