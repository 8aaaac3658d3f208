/* caching_allocator.c -- models PyTorch's caching allocator; caching_allocator.h states the rules and their source.
 *
 * train/memory_of/ calls.  Blocks are a list in this process; no memory of a device is used.  caching_allocate gives
 * NULL without memory for the list; no other function can fail.
 */
#include "emulated_devices/device/caching_allocator.h"
#include <stdlib.h>

static const uint64_t MIB = 1 << 20, LEAST = 512, FAR = UINT64_C(1) << 46;

struct caching_block {
    struct caching_block *next, *last;  /* in the list of all blocks */
    struct caching_block *below, *above;        /* neighbours in the segment; NULL: its ends */
    uint64_t address, size;
    int stream, pool;
    bool used;
};

void caching_open(struct caching_allocator *allocator, bool expandable)
{
    *allocator = (struct caching_allocator){ .expandable = expandable };
}

void caching_close(struct caching_allocator *allocator)
{
    while (allocator->blocks) {
        struct caching_block *b = allocator->blocks;
        allocator->blocks = b->next;
        free(b);
    }
}

uint64_t caching_address(const struct caching_block *block) { return block->address; }
uint64_t caching_size(const struct caching_block *block) { return block->size; }

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static void block_to_front(struct caching_allocator *allocator, struct caching_block *block)
{
    block->last = NULL, block->next = allocator->blocks;
    if (block->next) block->next->last = block;
    else allocator->back = block;
    allocator->blocks = block;
}

static void block_to_back(struct caching_allocator *allocator, struct caching_block *block)
{
    block->next = NULL, block->last = allocator->back;
    if (block->last) block->last->next = block;
    else allocator->blocks = block;
    allocator->back = block;
}

static void block_unlink(struct caching_allocator *allocator, struct caching_block *block)
{
    if (block->last) block->last->next = block->next;
    else allocator->blocks = block->next;
    if (block->next) block->next->last = block->last;
    else allocator->back = block->last;
}

static struct caching_block *block_add(struct caching_allocator *allocator, struct caching_block like)
{
    struct caching_block *b = malloc(sizeof *b);
    if (b == NULL) return NULL;
    *b = like;
    if (b->below) b->below->above = b;
    if (b->above) b->above->below = b;
    block_to_front(allocator, b);
    return b;
}

static void block_remove(struct caching_allocator *allocator, struct caching_block *block)
{
    block_unlink(allocator, block);
    free(block);
}

static bool block_at_end(const struct caching_allocator *allocator, const struct caching_block *block)
{
    return allocator->end[block->stream][block->pool] == block;
}

/* ---- finding a block --------------------------------------------------------------------------------------------- */

static bool block_before(const struct caching_block *a, const struct caching_block *b)
{
    return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/* Best fit.  The block at the end of an expandable segment counts as large as the segment may become. */
static struct caching_block *find_free(const struct caching_allocator *allocator, uint64_t size, int stream, int pool)
{
    struct caching_block *best = NULL, *end = NULL;
    for (struct caching_block *b = allocator->blocks; b && !b->used; b = b->next) {
        if (b->stream != stream || b->pool != pool || b->size < size) continue;
        if (block_at_end(allocator, b)) end = b;
        else if (best == NULL || block_before(b, best)) best = b;
    }
    return best ? best : end;
}

/* A segment of cudaMalloc: one free block. */
static struct caching_block *add_segment(struct caching_allocator *allocator, uint64_t size, int stream, int pool)
{
    const uint64_t bytes = pool == 0 ? 2 * MIB : size < 10 * MIB ? 20 * MIB : round_up(size, 2 * MIB);
    const struct caching_block whole = { .address = allocator->next, .size = bytes, .stream = stream, .pool = pool };
    struct caching_block *b = block_add(allocator, whole);
    if (b == NULL) return NULL;
    allocator->next += bytes;
    allocator->now.reserved += bytes;
    return b;
}

/* The segment of this stream and pool grows until its last block is free and has `size` bytes. */
static struct caching_block *grow_segment(struct caching_allocator *allocator, uint64_t size, int stream, int pool)
{
    struct caching_block *end = allocator->end[stream][pool];
    const uint64_t has = end && !end->used ? end->size : 0,
        bytes = round_up(size - has, pool == 0 ? 2 * MIB : 20 * MIB);
    const struct caching_block fresh = {
        .below = end, .size = bytes, .stream = stream, .pool = pool,
        .address = end ? end->address + end->size : FAR * (uint64_t)(1 + stream * CACHING_POOLS + pool),
    };
    allocator->now.reserved += bytes;
    if (has > 0) return end->size += bytes, end;
    return allocator->end[stream][pool] = block_add(allocator, fresh);
}

/* The rest of a block that is larger than needed becomes a free block above. */
static bool split(struct caching_allocator *allocator, struct caching_block *block, uint64_t size)
{
    const uint64_t left = block->size - size;
    const bool splits = block->pool == 0 || allocator->expandable ? left >= LEAST : left > MIB;
    const struct caching_block rest = { .below = block, .above = block->above, .address = block->address + size,
                                        .size = left, .stream = block->stream, .pool = block->pool };
    if (!splits) return true;
    struct caching_block *b = block_add(allocator, rest);
    if (b == NULL) return false;
    block->size = size;
    if (block_at_end(allocator, block)) allocator->end[block->stream][block->pool] = b;
    return true;
}

struct caching_block *caching_allocate(struct caching_allocator *allocator, uint64_t bytes, int stream)
{
    const uint64_t size = round_up(bytes < LEAST ? LEAST : bytes, LEAST);
    const int pool = size <= MIB ? 0 : 1;
    struct caching_block *b = find_free(allocator, size, stream, pool);
    if (b == NULL)
        b = allocator->expandable ? grow_segment(allocator, size, stream, pool)
                                  : add_segment(allocator, size, stream, pool);
    if (b == NULL || !split(allocator, b, size)) return NULL;
    b->used = true;
    block_unlink(allocator, b), block_to_back(allocator, b);
    allocator->now.allocated += b->size;
    if (allocator->now.allocated > allocator->peak.allocated) allocator->peak.allocated = allocator->now.allocated;
    if (allocator->now.reserved > allocator->peak.reserved) allocator->peak.reserved = allocator->now.reserved;
    return b;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

/* The lower block takes over the upper one. */
static void merge(struct caching_allocator *allocator, struct caching_block *lower, struct caching_block *upper)
{
    if (lower == NULL || upper == NULL || lower->used || upper->used) return;
    lower->size += upper->size;
    lower->above = upper->above;
    if (lower->above) lower->above->below = lower;
    if (block_at_end(allocator, upper)) allocator->end[upper->stream][upper->pool] = lower;
    block_remove(allocator, upper);
}

void caching_free(struct caching_allocator *allocator, struct caching_block *block)
{
    if (block == NULL) return;
    allocator->now.allocated -= block->size;
    block->used = false;
    block_unlink(allocator, block), block_to_front(allocator, block);
    merge(allocator, block, block->above);
    merge(allocator, block->below, block);
}
