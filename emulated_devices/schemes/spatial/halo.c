/* halo.c -- rows from neighbours, by messages to those who need them, and their gradients back home.
 *
 * Rows of an inner dimension lie apart in a block.  They are packed, or sent as they lie: by the way that is predicted
 * to be fastest (comm/strided_transfer.h).
 *
 * convolution.c reaches this file through walk_halo and walk_halo_home.  Both are collective over the devices of the
 * axis.  A device without memory gives up the whole job, because its neighbours wait for its rows.  Errors are those
 * of messages: ERR_COMM, ERR_MEMORY.
 */
#include "emulated_devices/comm/strided_transfer.h"
#include "emulated_devices/schemes/spatial/walk.h"
#include <stdlib.h>
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

/* One exchange: along which axis, and which way. */
struct halo {
    struct group *group;
    struct exchange exchange;
    int64_t whole, reach;               /* rows of the globe; of a halo */
    int64_t before, after;              /* elements before and behind the dimension */
    bool home;                          /* from part and halo to part; else from part to part and halo */
};

/* The rows that a member has before the exchange, or after it. */
static struct interval rows_of(const struct halo *halo, int member, bool after)
{
    const struct interval own = block_at(halo->whole, halo->group->size, member);
    return after != halo->home && own.count ? halo_of(halo->whole, halo->group->size, member, halo->reach) : own;
}

/* The rows that go from one member to another. */
static struct interval rows_sent(const struct halo *halo, int from, int to)
{
    return halo->home ? lent(halo->group, halo->whole, halo->reach, to, from)
                      : lent(halo->group, halo->whole, halo->reach, from, to);
}

/* Some rows inside a block that has others, too: pieces of the elements behind, again for all before. */
static struct strided form_of(const struct halo *halo, struct interval rows, struct interval block)
{
    const int64_t dim[] = { halo->before, block.count, halo->after },
                  start[] = { 0, rows.first - block.first, 0 }, extent[] = { halo->before, rows.count, halo->after };
    return strided_box(3, dim, start, extent, sizeof(double));
}

/* Rows of the sender's block become rows of the receiver's.  What comes home is added, so it comes side by side. */
static struct strided_pair pair_of(const struct halo *halo, int from, int to)
{
    const struct interval rows = rows_sent(halo, from, to);
    const struct strided sent = form_of(halo, rows, rows_of(halo, from, false));
    return (struct strided_pair){ sent, halo->home ? strided_run(strided_bytes(&sent))
                                                   : form_of(halo, rows, rows_of(halo, to, true)) };
}

/* Messages count in the cost of a cost walk, or in the expected traffic of a run. */
static void halo_enter(struct walk *walk, const struct halo *halo, int peer, const struct strided_pair *pair)
{
    const struct group *const g = halo->group;
    struct traffic *const t = walk->cost ? &walk->cost->of[POINT_TO_POINT]
        : &g->comm->expected.of[g->kind].of[POINT_TO_POINT];
    strided_enter(t, group_level(g, peer), pair, 1, strided_choice_to(g, peer, pair, 1));
}

/* Rows that come home are added, and each addition counts. */
static void enter_additions(struct walk *walk, const struct halo *halo, uint64_t count)
{
    if (walk->cost) walk->cost->of[POINT_TO_POINT].additions += count;
    else ledger_additions(&halo->group->comm->expected, halo->group, POINT_TO_POINT, count);
}

/* This device's side of what it sends to a member, or gets from there. */
struct halo_side { struct strided_pair pair; struct strided_transfer transfer; struct tensor packed; char *memory; };

/* Start the messages of one side; without memory the job ends, because the other side waits for them. */
static void start_side(struct walk *walk, struct halo *halo, struct halo_side *side, int peer,
                       enum strided_side which, struct tensor block)
{
    struct comm *const comm = halo->group->comm;
    side->packed = tensor_none, side->memory = block.data;
    walk->e = strided_open(&side->transfer, halo->group, peer, which, &side->pair, 1, walk->err);
    const uint64_t bytes = walk->e ? 0 : strided_packed(&side->transfer);
    if (bytes > 0) side->packed = walk_room(walk, (int64_t)(bytes / sizeof(double)));
    if (walk->e) comm_give_up(comm, walk->err);
    strided_start(&side->transfer, &halo->exchange, &side->memory, side->packed.data);
}

static void end_side(struct walk *walk, const struct halo *halo, struct halo_side *side)
{
    const enum error_code e = strided_wait(&side->transfer, walk->err);
    walk->e = walk->e ? walk->e : e;
    if (side->packed.data) device_free(halo->group->comm->device, side->packed);
}

/* Add rows that came home to those of the next block, piece by piece. */
static void halo_add_rows(struct halo *halo, struct interval block, struct tensor next, struct interval rows,
                          struct tensor came)
{
    /* The dimension lies inside, so its rows are `before` separate stretches. */
    for (int64_t b = 0; b < halo->before; b++)
        reduce_local(&halo->exchange, SUM, F64,
                     (double *)next.data + (b * block.count + rows.first - block.first) * halo->after,
                     (const double *)came.data + b * rows.count * halo->after, rows.count * halo->after);
}

/* Get the rows that a member sends: to their places, or beside and then added. */
static void receive_rows(struct walk *walk, struct halo *halo, int peer, struct tensor next)
{
    const struct interval rows = rows_sent(halo, peer, halo->group->rank);
    struct halo_side in = { .pair = pair_of(halo, peer, halo->group->rank) };
    struct tensor came = next;
    if (halo->home) came = walk_room(walk, strided_bytes(&in.pair.to) / (int64_t)sizeof(double));
    if (walk->e) comm_give_up(halo->group->comm, walk->err);
    start_side(walk, halo, &in, peer, RECEIVES_STRIDED, came);
    end_side(walk, halo, &in);
    if (!halo->home) return;
    if (!walk->e) halo_add_rows(halo, rows_of(halo, halo->group->rank, true), next, rows, came);
    device_free(halo->group->comm->device, came);
}

/* All sends start before the first wait, so no two devices wait for each other. */
static void exchange_rows(struct walk *walk, struct halo *halo, struct tensor next)
{
    struct group *const g = halo->group;
    struct halo_side *const out = calloc((size_t)g->size, sizeof *out);
    if (out == NULL) {
        walk->e = fail(walk->err, ERR_MEMORY, "no memory for %d neighbours of a tile", g->size);
        if (!walk->cost) comm_give_up(g->comm, walk->err);
        return;
    }
    for (int i = 0; i < g->size; i++) {
        out[i].pair = pair_of(halo, g->rank, i);
        if (strided_bytes(&out[i].pair.from) == 0) continue;
        halo_enter(walk, halo, i, &out[i].pair);
        if (!walk->cost) start_side(walk, halo, &out[i], i, SENDS_STRIDED, walk->at);
    }
    for (int i = 0; i < g->size && !walk->e; i++) {
        const struct interval rows = rows_sent(halo, i, g->rank);
        if (rows.count * halo->before * halo->after == 0) continue;
        if (halo->home) enter_additions(walk, halo, (uint64_t)(rows.count * halo->before * halo->after));
        if (!walk->cost) receive_rows(walk, halo, i, next);
    }
    /* The rows are read until the messages have left. */
    for (int i = 0; i < g->size && !walk->cost; i++)
        if (strided_bytes(&out[i].pair.from) > 0) end_side(walk, halo, &out[i]);
    free(out);
}

/* home: from part and halo to part; else from part to part and halo. */
static void exchange_halo(struct walk *walk, enum tile_axis axis, int dimension, int64_t whole,
                          int64_t reach, bool home)
{
    struct group *const g = &walk->tiling->along[axis];
    struct halo halo = { .group = g, .whole = whole, .reach = reach, .before = 1, .after = 1,
                         .home = home };
    const struct interval own = block_at(whole, g->size, g->rank), here = rows_of(&halo, g->rank, false),
                          next_here = rows_of(&halo, g->rank, true);
    struct tensor next = tensor_none;
    int64_t size[WALK_DIMS];
    memcpy(size, walk->size, sizeof size);
    size[dimension] = next_here.count;
    for (int i = 0; i < dimension; i++) halo.before *= size[i];
    for (int i = dimension + 1; i < WALK_DIMS; i++) halo.after *= size[i];
    if (walk->e) return;
    /* A run allocates the new block, with or without halo, and copies the own rows first. */
    if (!walk->cost) {
        halo.exchange = exchange_begin(g, POINT_TO_POINT);
        next = walk_room(walk, walk_count(size));
        if (walk->e) comm_give_up(g->comm, walk->err);
        /* The own rows are copied; only those of the halo are sent. */
        if (home) walk_pack(walk, walk->size, walk->at, dimension, interval_moved(own, -here.first), next.data, false);
        else walk_pack(walk, size, next, dimension, interval_moved(own, -next_here.first), walk->at.data, true);
    }
    exchange_rows(walk, &halo, next);
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
