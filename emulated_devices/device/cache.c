#include "emulated_devices/device/cache.h"

/* The kept block with the least count; -1: none. */
static int least(const struct cache *c)
{
    int found = -1;
    for (int b = 0; b < c->blocks; b++)
        if (c->block[b].kept && (found < 0 || c->block[b].count < c->block[found].count)) found = b;
    return found;
}

static void let_go(struct cache *c, int block, struct cache_moves *m)
{
    struct cache_block *b = &c->block[block];
    if (b->changed) m->written += b->bytes;
    b->kept = b->changed = false;
    c->used -= b->bytes;
}

static bool make_room(struct cache *c, uint64_t bytes, struct cache_moves *m)
{
    if (bytes > c->room) return false;
    while (c->used + bytes > c->room) {
        const int victim = least(c);
        /* The rule is the paper's: a block makes way only if it was asked for often enough. */
        if (c->block[victim].count < c->threshold) return false;
        let_go(c, victim, m);
    }
    return true;
}

static void decay(struct cache *c)
{
    for (int b = 0; b < c->blocks; b++) c->block[b].count *= c->decay;
}

struct cache_moves cache_request(struct cache *c, int block)
{
    struct cache_block *b = &c->block[block];
    struct cache_moves m = { .hit = b->kept };
    c->requests++, c->hits += m.hit;
    if (m.hit) b->count++;
    else if (make_room(c, b->bytes, &m)) {
        *b = (struct cache_block){ .bytes = b->bytes, .count = 1, .kept = true };
        c->used += b->bytes;
        m.taken = true;
    }
    if (c->every > 0 && c->requests % (uint64_t)c->every == 0) decay(c);
    return m;
}

bool cache_change(struct cache *c, int block)
{
    if (c->block[block].kept) c->block[block].changed = true;
    return c->block[block].kept;
}
