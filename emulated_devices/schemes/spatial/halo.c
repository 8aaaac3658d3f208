/* halo.c -- rows from neighbours, by messages to those who need them, and their gradients back home.
 *
 * convolution.c reaches this file through walk_halo and walk_halo_home.  Both are collective over the devices of the
 * axis.  A device without memory gives up the whole job, because its neighbours wait for its rows.  Errors are those
 * of messages: ERR_COMM, ERR_MEMORY.
 */
#include "emulated_devices/schemes/spatial/walk.h"
#include <string.h>

struct interval halo_of(int64_t whole, int parts, int part, int64_t reach)
{
    const struct interval own = block_at(whole, parts, part);
    return interval_meet((struct interval){ own.first - reach, own.count + 2 * reach }, (struct interval){ 0, whole });
}

/* `lent` is one side of the exchange: the rows that member `owner` has and member `guest` needs besides its own. */
static struct interval lent(const struct group *group, int64_t whole, int64_t reach, int owner, int guest)
{
    if (owner == guest || block_at(whole, group->size, guest).count == 0) return (struct interval){ 0, 0 };
    return interval_meet(block_at(whole, group->size, owner), halo_of(whole, group->size, guest, reach));
}

/* The messages of one exchange. */
struct messages {
    struct group *group;
    struct exchange exchange;
    int64_t row;                        /* elements of one row, with all that is before and after it */
};

/* A message counts in the cost of a cost walk, or in the expected traffic of a run. */
static void halo_enter(struct walk *walk, const struct messages *messages, int peer, uint64_t bytes)
{
    if (walk->cost) traffic_send(&walk->cost->of[POINT_TO_POINT], group_level(messages->group, peer), bytes, 1);
    else ledger_messages(&messages->group->comm->expected, messages->group, POINT_TO_POINT, peer, bytes, 1);
}

/* Rows that come home are added, and each addition counts. */
static void enter_additions(struct walk *walk, const struct messages *messages, uint64_t count)
{
    if (walk->cost) walk->cost->of[POINT_TO_POINT].additions += count;
    else ledger_additions(&messages->group->comm->expected, messages->group, POINT_TO_POINT, count);
}

/* Send a member its rows of this block, counted from the block's first; they stay packed until it has them. */
static struct message send_rows(struct walk *walk, struct messages *messages, int peer, int dimension,
                                struct interval rows, struct tensor *packed)
{
    const uint64_t bytes = (uint64_t)(rows.count * messages->row) * sizeof(double);
    halo_enter(walk, messages, peer, bytes);
    *packed = tensor_none;
    if (walk->cost || walk->e) return (struct message){ -1 };
    *packed = walk_room(walk, rows.count * messages->row);
    if (walk->e) comm_give_up(messages->group->comm, walk->err);
    walk_pack(walk, walk->size, walk->at, dimension, rows, packed->data, false);
    return message_send(&messages->exchange, peer, packed->data, bytes);
}

/* The result [rows] is the caller's to free, also if the message failed. */
static struct tensor receive_rows(struct walk *walk, struct messages *messages, int peer, int64_t rows)
{
    const struct tensor t = walk_room(walk, rows * messages->row);
    if (walk->e) comm_give_up(messages->group->comm, walk->err);
    const struct message in = message_receive(&messages->exchange, peer, t.data,
                                              (uint64_t)(rows * messages->row) * sizeof(double));
    walk->e = message_wait(messages->group->comm, in, walk->err);
    return t;
}

/* Add rows that came home to those of the next block, piece by piece. */
static void halo_add_rows(struct messages *messages, const int64_t size[], struct tensor next, int dimension,
                          struct interval rows, struct tensor came)
{
    int64_t before = 1, after = 1;
    for (int i = 0; i < dimension; i++) before *= size[i];
    for (int i = dimension + 1; i < WALK_DIMS; i++) after *= size[i];
    /* The dimension lies inside, so its rows are `before` separate stretches. */
    for (int64_t b = 0; b < before; b++)
        reduce_local(&messages->exchange, SUM, F64, (double *)next.data + (b * size[dimension] + rows.first) * after,
                     (const double *)came.data + b * rows.count * after, rows.count * after);
}

/* home: from part and halo to part; else from part to part and halo. */
static void exchange_halo(struct walk *walk, enum tile_axis axis, int dimension, int64_t whole,
                          int64_t reach, bool home)
{
    struct group *const g = &walk->tiling->along[axis];
    const struct interval own = block_at(whole, g->size, g->rank),
                          wide = own.count ? halo_of(whole, g->size, g->rank, reach) : own,
                          here = home ? wide : own, next_here = home ? own : wide;
    struct messages m = { .group = g, .row = 1 };
    struct message message[MESH_MOST_LISTED];
    struct tensor packed[MESH_MOST_LISTED], next = tensor_none;
    int64_t size[WALK_DIMS];
    memcpy(size, walk->size, sizeof size);
    size[dimension] = next_here.count;
    for (int i = 0; i < WALK_DIMS; i++) m.row *= i == dimension ? 1 : size[i];
    if (walk->e) return;
    /* A run allocates the new block, with or without halo, and copies the own rows first. */
    if (!walk->cost) {
        m.exchange = exchange_begin(g, POINT_TO_POINT);
        next = walk_room(walk, walk_count(size));
        if (walk->e) comm_give_up(g->comm, walk->err);
        /* The own rows are copied; only those of the halo are sent. */
        if (home) walk_pack(walk, walk->size, walk->at, dimension, interval_moved(own, -here.first), next.data, false);
        else walk_pack(walk, size, next, dimension, interval_moved(own, -next_here.first), walk->at.data, true);
    }
    /* All sends start before the first wait, so no two devices wait for each other. */
    for (int i = 0; i < g->size; i++) {
        /* `out` has this device's rows that member i needs, or this device's halo rows that member i owns. */
        const struct interval out = home ? lent(g, whole, reach, i, g->rank) : lent(g, whole, reach, g->rank, i);
        packed[i] = tensor_none;
        if (out.count * m.row > 0)
            message[i] = send_rows(walk, &m, i, dimension, interval_moved(out, -here.first), &packed[i]);
    }
    /* The rows of every owner go to their places, or are added there. */
    for (int i = 0; i < g->size && !walk->e; i++) {
        const struct interval in = home ? lent(g, whole, reach, g->rank, i) : lent(g, whole, reach, i, g->rank);
        if (in.count * m.row == 0) continue;
        if (home) enter_additions(walk, &m, (uint64_t)(in.count * m.row));
        if (walk->cost) continue;
        struct tensor came = receive_rows(walk, &m, i, in.count);
        const struct interval rows = interval_moved(in, -next_here.first);
        if (home) halo_add_rows(&m, size, next, dimension, rows, came);
        else walk_pack(walk, size, next, dimension, rows, came.data, true);
        device_free(g->comm->device, came);
    }
    /* Packed rows may be freed only after the messages have been sent. */
    for (int i = 0; i < g->size; i++) {
        if (packed[i].data == NULL) continue;
        const enum error_code e = message_wait(g->comm, message[i], walk->err);
        walk->e = walk->e ? walk->e : e;
        device_free(g->comm->device, packed[i]);
    }
    walk_on(walk, size, next);
}

void walk_halo(struct walk *walk, enum tile_axis axis, int dimension, int64_t whole, int64_t reach)
{
    exchange_halo(walk, axis, dimension, whole, reach, false);
}

void walk_halo_home(struct walk *walk, enum tile_axis axis, int dimension, int64_t whole, int64_t reach)
{
    exchange_halo(walk, axis, dimension, whole, reach, true);
}
