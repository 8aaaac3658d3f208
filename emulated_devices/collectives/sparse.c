#include "emulated_devices/collectives/sparse.h"

static int64_t blocks_of(const struct collective *c, int P) { return c->placement ? c->placement->blocks : P; }
static int owner_of(const struct collective *c, int64_t b) { return c->placement ? c->placement->owner[b] : (int)b; }

bool sparse_holds(const struct collective *c, int P, int64_t b, int member)
{
    return c->placement == NULL || c->placement->owner[b] == member || c->placement->held[b * P + member];
}

bool sparse_next(const struct collective *c, int P, int member, struct sparse_walk *w)
{
    const int64_t blocks = blocks_of(c, P);
    /* Own blocks lie one after another in one buffer, held blocks in the other, both in order of blocks. */
    if (w->b >= 0) w->owned_at += w->owns ? w->length : 0, w->held_at += w->holds ? w->length : 0;
    if (++w->b >= blocks) return false;
    w->length = c->counts ? c->counts[w->b] : block_at(c->count, (int)blocks, (int)w->b).count;
    w->owner = owner_of(c, w->b);
    w->owns = w->owner == member, w->holds = sparse_holds(c, P, w->b, member);
    return true;
}

void sparse_holders(const struct collective *c, int P, int member, const struct sparse_walk *w, struct holders *h)
{
    h->count = 0, h->me = -1;
    /* The owner comes first, the others follow in the order of ranks after it. */
    for (int k = 0; k < P; k++) {
        const int m = imod(w->owner + k, P);
        if (!sparse_holds(c, P, w->b, m)) continue;
        if (m == member) h->me = h->count;
        h->member[h->count++] = m;
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

bool sparse_part(const struct exchange *x, const struct collective *c, const struct sparse_walk *w, int level,
                 struct holders *h)
{
    if (!w->holds || w->length == 0) return false;
    sparse_holders(c, x->group->size, x->group->rank, w, h);
    return h->count > 1 && holder_level(h->me) == level;
}

uint64_t sparse_depth(const struct collective *c, int P)
{
    int most = 1;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, 0, &w); ) {
        int holders = 0;
        for (int m = 0; m < P; m++) holders += sparse_holds(c, P, w.b, m);
        if (w.length > 0 && holders > most) most = holders;
    }
    return (uint64_t)ceil_log2(most);
}

int64_t sparse_first_owned(const struct collective *c, int P, int member)
{
    struct sparse_walk w = { .b = -1 };
    while (sparse_next(c, P, member, &w) && !(w.owns && w.length > 0)) ;
    return w.held_at;
}

struct own_blocks sparse_own_blocks(const struct exchange *x, const struct collective *c)
{
    const int64_t first = sparse_first_owned(c, x->group->size, x->group->rank);
    const bool gathers = x->operation == SPARSE_ALLGATHER;
    const void *larger = gathers ? c->out : c->in, *smaller = gathers ? c->in : c->out;
    return (struct own_blocks){ smaller == const_element(c, larger, first), first };
}

void sparse_copy_own(struct exchange *x, const struct collective *c)
{
    const struct own_blocks own = sparse_own_blocks(x, c);
    const bool gathers = x->operation == SPARSE_ALLGATHER;
    for (struct sparse_walk w = { .b = -1 }; !own.in_place && sparse_next(c, x->group->size, x->group->rank, &w); )
        if (w.owns)
            copy_elements(x, c, element(c, c->out, gathers ? w.held_at : w.owned_at),
                          const_element(c, c->in, gathers ? w.owned_at : w.held_at), w.length);
}
