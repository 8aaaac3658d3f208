/* sparse.c -- walks over the blocks of a sparse collective: owners, holders, their trees and places in buffers.
 *
 * The algorithms in sparse/, and arguments.c, call this file; sparse.h declares its functions.  No function here
 * sends or can fail.
 */
#include "emulated_devices/collectives/sparse.h"

/* Without a placement there is a block for each member, which all members hold. */
static int64_t sparse_blocks_of(const struct collective *collective, int P)
{
    return collective->placement ? collective->placement->blocks : P;
}
static int owner_of(const struct collective *collective, int64_t b)
{
    return collective->placement ? collective->placement->owner[b] : (int)b;
}

bool sparse_holds(const struct collective *collective, int P, int64_t b, int member)
{
    return collective->placement == NULL || collective->placement->owner[b] == member
           || collective->placement->held[b * P + member];
}

bool sparse_next(const struct collective *collective, int P, int member, struct sparse_walk *walk)
{
    const int64_t blocks = sparse_blocks_of(collective, P);
    /* Own blocks lie one after another in one buffer, held blocks in the other, both in order of blocks. */
    if (walk->b >= 0) walk->owned_at += walk->owns ? walk->length : 0, walk->held_at += walk->holds ? walk->length : 0;
    if (++walk->b >= blocks) return false;
    walk->length = collective->counts ? collective->counts[walk->b]
        : block_at(collective->count, (int)blocks, (int)walk->b).count;
    walk->owner = owner_of(collective, walk->b);
    walk->owns = walk->owner == member, walk->holds = sparse_holds(collective, P, walk->b, member);
    return true;
}

void sparse_holders(const struct collective *collective, int P, int member, const struct sparse_walk *walk,
                    struct holders *holders)
{
    holders->count = 0, holders->me = -1;
    /* The owner comes first, the others follow in the order of ranks after it. */
    for (int k = 0; k < P; k++) {
        const int m = imod(walk->owner + k, P);
        if (!sparse_holds(collective, P, walk->b, m)) continue;
        if (m == member) holders->me = holders->count;
        holders->member[holders->count++] = m;
    }
}

int holder_children(int v, int count, int child[HOLDER_CHILDREN])
{
    int children = 0, bit = 1;
    /* A child has one more bit than v, below v's lowest one. */
    while (bit < count && (v & bit) == 0) bit <<= 1;
    for (bit >>= 1; bit > 0; bit >>= 1)
        if (v + bit < count) child[children++] = v + bit;
    return children;
}

int holder_level(int v)
{
    int level = 0;
    for (; v > 0; v = holder_parent(v)) level++;
    return level;
}

bool sparse_part(const struct exchange *exchange, const struct collective *collective,
                 const struct sparse_walk *walk, int level, struct holders *holders)
{
    if (!walk->holds || walk->length == 0) return false;
    sparse_holders(collective, exchange->group->size, exchange->group->rank, walk, holders);
    return holders->count > 1 && holder_level(holders->me) == level;
}

/* The longest chain is that of the block with most holders; empty blocks are not sent. */
uint64_t sparse_depth(const struct collective *collective, int P)
{
    int most = 1;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, 0, &w); ) {
        int holders = 0;
        for (int m = 0; m < P; m++) holders += sparse_holds(collective, P, w.b, m);
        if (w.length > 0 && holders > most) most = holders;
    }
    return (uint64_t)ceil_log2(most);
}

/* The walk stops at the first own block with elements; held_at is then its place among the held ones. */
int64_t sparse_first_owned(const struct collective *collective, int P, int member)
{
    struct sparse_walk w = { .b = -1 };
    while (sparse_next(collective, P, member, &w) && !(w.owns && w.length > 0)) ;
    return w.held_at;
}

/* Whether this member's call is in place.  The larger buffer is `out` of an all-gather and `in` of a reduce-scatter. */
struct own_blocks sparse_own_blocks(const struct exchange *exchange, const struct collective *collective)
{
    const int64_t first = sparse_first_owned(collective, exchange->group->size, exchange->group->rank);
    const bool gathers = exchange->operation == SPARSE_ALLGATHER;
    const void *larger = gathers ? collective->out : collective->in, *smaller = gathers ? collective->in
        : collective->out;
    return (struct own_blocks){ smaller == const_element(collective, larger, first), first };
}

void sparse_copy_own(struct exchange *exchange, const struct collective *collective)
{
    const struct own_blocks own = sparse_own_blocks(exchange, collective);
    const bool gathers = exchange->operation == SPARSE_ALLGATHER;
    for (struct sparse_walk w = { .b = -1 }; !own.in_place
         && sparse_next(collective, exchange->group->size, exchange->group->rank, &w); )
        if (w.owns)
            copy_elements(exchange, collective, element(collective, collective->out, gathers ? w.held_at : w.owned_at),
                          const_element(collective, collective->in, gathers ? w.owned_at : w.held_at), w.length);
}
