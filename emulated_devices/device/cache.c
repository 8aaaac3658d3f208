/* cache.c -- which blocks the host's memory keeps of a slower drive, by how often they were asked for.
 *
 * tier.c calls this file.  No function here moves bytes: the caller is told which moves are due.  No function here
 * can fail.
 */
#include "emulated_devices/device/cache.h"

/* The kept block with the least count; -1: none. */
static int cache_least(const struct cache *cache)
{
    int found = -1;
    for (int b = 0; b < cache->blocks; b++)
        if (cache->block[b].kept && (found < 0 || cache->block[b].count < cache->block[found].count)) found = b;
    return found;
}

/* A changed block has to be written to the drive before its room is used. */
static void let_go(struct cache *cache, int block, struct cache_moves *moves)
{
    struct cache_block *b = &cache->block[block];
    if (b->changed) moves->written += b->bytes;
    b->kept = b->changed = false;
    cache->used -= b->bytes;
}

static bool cache_make_room(struct cache *cache, uint64_t bytes, struct cache_moves *moves)
{
    if (bytes > cache->room) return false;
    while (cache->used + bytes > cache->room) {
        const int victim = cache_least(cache);
        /* The rule is the paper's: a block makes way only if it was asked for often enough. */
        if (cache->block[victim].count < cache->threshold) return false;
        let_go(cache, victim, moves);
    }
    return true;
}

static void decay(struct cache *cache)
{
    for (int b = 0; b < cache->blocks; b++) cache->block[b].count *= cache->decay;
}

/* Count the request, and take the block if it fits or others make way. */
struct cache_moves cache_request(struct cache *cache, int block)
{
    struct cache_block *b = &cache->block[block];
    struct cache_moves m = { .hit = b->kept };
    cache->requests++, cache->hits += m.hit;
    if (m.hit) b->count++;
    else if (cache_make_room(cache, b->bytes, &m)) {
        *b = (struct cache_block){ .bytes = b->bytes, .count = 1, .kept = true };
        cache->used += b->bytes;
        m.taken = true;
    }
    if (cache->every > 0 && cache->requests % (uint64_t)cache->every == 0) decay(cache);
    return m;
}

bool cache_change(struct cache *cache, int block)
{
    if (cache->block[block].kept) cache->block[block].changed = true;
    return cache->block[block].kept;
}
