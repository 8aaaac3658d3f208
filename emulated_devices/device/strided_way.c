/* strided_way.c -- predicts when strided bytes have come to another device, and chooses how they are sent.
 *
 * The prediction walks through both devices' work as their clocks do (clock.c), for two devices that begin together and
 * do nothing else: then the receiver's clock stands at exactly this time.  comm/strided_transfer.c and
 * cli/bench/packing.c call.  No function fails.
 */
#include "emulated_devices/device/strided_way.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/kernel_set.h"

enum { MOST_SEGMENTS = 64, SECTOR = 32 };       /* bytes of the smallest part of its memory that a device reads */

const char *strided_way_name(enum strided_way way)
{
    static const char *const name[STRIDED_WAYS] = { "one-shot", "staged", "direct" };
    return name[way];
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

struct strided_walk strided_walk_begin(const struct strided_pair *pair, int pairs)
{
    return (struct strided_walk){ .pair = pair, .pairs = pairs, .at = -1 };
}

bool strided_next(struct strided_walk *walk, struct strided_piece *piece)
{
    while (walk->left == 0) {
        if (++walk->at >= walk->pairs) return false;
        const struct strided_pair *const p = &walk->pair[walk->at];
        walk->from = strided_cursor_begin(&p->from), walk->to = strided_cursor_begin(&p->to);
        walk->left = strided_bytes(&p->from);
    }
    const int64_t a = strided_cursor_left(&walk->from), b = strided_cursor_left(&walk->to), bytes = a < b ? a : b;
    *piece = (struct strided_piece){ walk->at, walk->from.at + walk->from.done, walk->to.at + walk->to.done, bytes };
    strided_cursor_go(&walk->from, bytes), strided_cursor_go(&walk->to, bytes);
    walk->left -= bytes;
    return true;
}

/* Add one side of a pair: its runs, each of which touches whole sectors. */
static void size_add(struct strided_size *size, int side, const struct strided *form, int64_t *runs)
{
    *runs += strided_runs(form);
    size->touched[side] += strided_runs(form) * ((form->run + SECTOR - 1) / SECTOR * SECTOR);
}

struct strided_size strided_size_of(const struct strided_pair *pair, int pairs)
{
    struct strided_size size = { .bytes = 0 };
    struct strided_walk walk = strided_walk_begin(pair, pairs);
    struct strided_piece piece;
    int64_t runs[2] = { 0, 0 };
    for (int p = 0; p < pairs; p++) {
        size.bytes += strided_bytes(&pair[p].from);
        size_add(&size, 0, &pair[p].from, &runs[0]), size_add(&size, 1, &pair[p].to, &runs[1]);
    }
    size.apart[0] = runs[0] > 1, size.apart[1] = runs[1] > 1;
    while (size.pieces <= STRIDED_MESSAGES && strided_next(&walk, &piece)) size.pieces++;
    return size;
}

int64_t strided_segment(const struct strided_size *size, int messages, int i)
{
    return size->bytes * (i + 1) / messages - size->bytes * i / messages;
}

struct op_cost strided_cost(const struct strided_size *size, int side, int64_t bytes)
{
    const double touched = (double)size->touched[side] * (double)bytes / (double)size->bytes;
    return (struct op_cost){ .bytes = (double)bytes + touched };
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* A device of the prediction: its stream, its host, its port. */
struct traveller { picoseconds now, host, port; };

/* All devices predict with the stated rate of the memory, so that sender and receiver choose alike. */
static picoseconds road_kernel(const struct strided_road *road, struct op_cost cost)
{
    const struct cluster *const c = road->cluster;
    if (c->stated_memory_rate == 0) return kernel_time(c, road->dtype, STRIDED_PACK, cost);
    struct cluster stated = *c;
    stated.memory_rate = c->stated_memory_rate;
    return kernel_time(&stated, road->dtype, STRIDED_PACK, cost);
}

/* A kernel begins when the host has started it (clock_issue in clock.c). */
static void traveller_pack(struct traveller *traveller, const struct strided_road *road, struct op_cost cost)
{
    const picoseconds takes = road_kernel(road, cost),
                      pace = kernel_set_pace(road->cluster->kernels.set, road->cluster);
    const int64_t kernels = pace > 0 ? kernel_starts(road->cluster, STRIDED_PACK, cost) : 0;
    if (kernels > 0) {
        const picoseconds first = traveller->host + pace, part = (takes + kernels - 1) / kernels;
        traveller->host += kernels * pace;
        const picoseconds last = traveller->host + part - takes, held = first > last ? first : last;
        if (held > traveller->now) traveller->now = held;
    }
    traveller->now += takes;
}

/* The host starts a message (clock_start_collective). */
static void traveller_start(struct traveller *traveller, const struct strided_road *road)
{
    const struct kernel_set *const set = road->cluster->kernels.set;
    const picoseconds pace = kernel_set_pace(set, road->cluster);
    if (pace == 0) return;
    traveller->host += set->collective_kernels * pace;
    if (traveller->host > traveller->now) traveller->now = traveller->host;
}

/* A message leaves through the sender's port, and comes through the receiver's. */
static void travel(struct traveller *from, struct traveller *to, const struct link *link, int64_t bytes,
                   picoseconds posted)
{
    const picoseconds takes = link->gap + time_at_rate((uint64_t)bytes, link->rate),
                      begins = from->now > from->port ? from->now : from->port;
    from->port = begins + takes;
    picoseconds whole = from->port + link->latency;
    if ((uint64_t)bytes > link->eager && whole < posted + takes + link->latency) whole = posted + takes + link->latency;
    to->port = (whole - takes > to->port ? whole - takes : to->port) + takes;
    if (to->port > to->now) to->now = to->port;
}

picoseconds strided_time(const struct strided_road *road, const struct strided_pair *pair, int pairs,
                         const struct strided_size *size, enum strided_way way, int messages)
{
    const struct link *const link = &road->cluster->link[road->level];
    struct strided_walk walk = strided_walk_begin(pair, pairs);
    struct traveller from = { 0 }, to = { 0 };
    struct strided_piece piece = { 0 };
    picoseconds posted[STRIDED_MESSAGES];
    for (int i = 0; i < messages; i++) traveller_start(&to, road), posted[i] = to.now;
    for (int i = 0; i < messages; i++) {
        const bool packs = way != DIRECT;
        if (!packs) strided_next(&walk, &piece);
        const int64_t bytes = packs ? strided_segment(size, messages, i) : piece.bytes;
        if (packs && size->apart[0]) traveller_pack(&from, road, strided_cost(size, 0, bytes));
        traveller_start(&from, road);
        travel(&from, &to, link, bytes, posted[i]);
        if (packs && size->apart[1]) traveller_pack(&to, road, strided_cost(size, 1, bytes));
    }
    return to.now;
}

struct strided_choice strided_choose(const struct strided_road *road, const struct strided_pair *pair, int pairs,
                                     const struct strided_size *size)
{
    struct strided_choice best = { ONE_SHOT, 1, strided_time(road, pair, pairs, size, ONE_SHOT, 1) };
    /* Bytes that lie side by side on both sides have no other way. */
    if (size->pieces <= 1) return best;
    for (int n = 2; n <= MOST_SEGMENTS && n <= size->bytes; n *= 2) {
        const picoseconds time = strided_time(road, pair, pairs, size, STAGED, n);
        if (time < best.time) best = (struct strided_choice){ STAGED, n, time };
    }
    if (size->pieces > STRIDED_MESSAGES) return best;
    const picoseconds time = strided_time(road, pair, pairs, size, DIRECT, size->pieces);
    return time < best.time ? (struct strided_choice){ DIRECT, size->pieces, time } : best;
}
