/* blocks.c -- counts the blocks of a key and value cache, and finds them by the hashes of their tokens.  scheduler.c
 * calls.  ERR_MEMORY of block_pool_open; ERR_INTERNAL of block_pool_check, if the counts do not fit together. */
#include "emulated_devices/serve/blocks.h"
#include <stdlib.h>
#include <string.h>

/* ---- the queue of free blocks ------------------------------------------------------------------------------------ */

static void queue_add(struct block_pool *pool, int64_t block)
{
    struct kv_block *const b = &pool->block[block];
    b->before = pool->last, b->after = NO_BLOCK;
    if (pool->last != NO_BLOCK) pool->block[pool->last].after = block;
    else pool->first = block;
    pool->last = block;
    pool->free++;
}

static void queue_leave(struct block_pool *pool, int64_t block)
{
    struct kv_block *const b = &pool->block[block];
    if (b->before != NO_BLOCK) pool->block[b->before].after = b->after;
    else pool->first = b->after;
    if (b->after != NO_BLOCK) pool->block[b->after].before = b->before;
    else pool->last = b->before;
    b->before = b->after = NO_BLOCK;
    pool->free--;
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

/* The first word of a hash chooses the bucket. */
static int64_t *bucket_of(const struct block_pool *pool, const struct sha256_digest *hash)
{
    return &pool->bucket[(int64_t)hash->word[0] % pool->buckets];
}

struct sha256_digest block_hash(const struct sha256_digest *before, const int32_t *token, int64_t count)
{
    struct sha256 sum = sha256_begin();
    if (before) sha256_add(&sum, before->word, sizeof before->word);
    sha256_add(&sum, token, (size_t)count * sizeof *token);
    return sha256_digest(&sum);
}

int64_t block_find(const struct block_pool *pool, const struct sha256_digest *hash)
{
    int64_t block = *bucket_of(pool, hash);
    while (block != NO_BLOCK && memcmp(&pool->block[block].hash, hash, sizeof *hash) != 0)
        block = pool->block[block].next;
    return block;
}

/* A new block stands behind those that were registered before it. */
void block_register(struct block_pool *pool, int64_t block, const struct sha256_digest *hash)
{
    int64_t *at = bucket_of(pool, hash);
    while (*at != NO_BLOCK) at = &pool->block[*at].next;
    *at = block;
    pool->block[block].hash = *hash, pool->block[block].hashed = true, pool->block[block].next = NO_BLOCK;
}

static void block_forget(struct block_pool *pool, int64_t block)
{
    struct kv_block *const b = &pool->block[block];
    if (!b->hashed) return;
    int64_t *at = bucket_of(pool, &b->hash);
    while (*at != block) at = &pool->block[*at].next;
    *at = b->next;
    b->hashed = false, b->next = NO_BLOCK;
}

/* ---- users ------------------------------------------------------------------------------------------------------- */

enum error_code block_pool_open(struct block_pool *pool, int64_t blocks, int64_t tokens, struct error *err)
{
    *pool = (struct block_pool){ .blocks = blocks, .tokens = tokens, .first = NO_BLOCK, .last = NO_BLOCK,
                                 .buckets = 2 * blocks + 1 };
    pool->block = calloc((size_t)blocks + 1, sizeof *pool->block);
    pool->bucket = malloc((size_t)pool->buckets * sizeof *pool->bucket);
    pool->users = calloc((size_t)blocks + 1, sizeof *pool->users);
    if (pool->block == NULL || pool->users == NULL || pool->bucket == NULL) {
        block_pool_close(pool);
        return fail(err, ERR_MEMORY, "no memory for a list of %lld blocks", (long long)blocks);
    }
    for (int64_t i = 0; i < pool->buckets; i++) pool->bucket[i] = NO_BLOCK;
    for (int64_t b = 0; b < blocks; b++) pool->block[b].next = NO_BLOCK, queue_add(pool, b);
    return OK;
}

void block_pool_close(struct block_pool *pool)
{
    free(pool->block), free(pool->bucket), free(pool->users);
    *pool = (struct block_pool){ 0 };
}

int64_t blocks_for(const struct block_pool *pool, int64_t tokens) { return (tokens + pool->tokens - 1) / pool->tokens; }

void blocks_take(struct block_pool *pool, int64_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = pool->first;
        queue_leave(pool, block);
        /* Its memory will hold other tokens from now on. */
        block_forget(pool, block);
        pool->users[block] = 1, pool->uses++;
        list[i] = block;
    }
}

void block_use(struct block_pool *pool, int64_t block)
{
    pool->uses++;
    if (pool->users[block]++ == 0) queue_leave(pool, block);
}

void blocks_release(struct block_pool *pool, const int64_t *list, int64_t count)
{
    pool->uses -= count;
    for (int64_t i = count - 1; i >= 0; i--)
        if (--pool->users[list[i]] == 0) queue_add(pool, list[i]);
}

static enum error_code count_users(const struct block_pool *pool, struct error *err)
{
    int64_t unused = 0, negative = 0, uses = 0;
    for (int64_t b = 0; b < pool->blocks; b++)
        unused += pool->users[b] == 0, negative += pool->users[b] < 0, uses += pool->users[b];
    for (int64_t b = 0; b < pool->blocks && negative > 0; b++)
        if (pool->users[b] < 0)
            return fail(err, ERR_INTERNAL, "block %lld of the cache was released more often than it was used",
                        (long long)b);
    if (uses != pool->uses)
        return fail(err, ERR_INTERNAL, "sequences use blocks of the cache %lld times; it counts %lld", (long long)uses,
                    (long long)pool->uses);
    if (unused == pool->free) return OK;
    return fail(err, ERR_INTERNAL, "the cache counts %lld free blocks; nobody uses %lld", (long long)pool->free,
                (long long)unused);
}

static enum error_code walk_queue(const struct block_pool *pool, struct error *err)
{
    int64_t queued = 0;
    for (int64_t b = pool->first; b != NO_BLOCK && queued <= pool->blocks; b = pool->block[b].after, queued++)
        if (pool->users[b] != 0)
            return fail(err, ERR_INTERNAL, "block %lld of the cache is free, and %lld sequences use it", (long long)b,
                        (long long)pool->users[b]);
    if (queued == pool->free) return OK;
    return fail(err, ERR_INTERNAL, "the cache counts %lld free blocks; its queue has %lld", (long long)pool->free,
                (long long)queued);
}

enum error_code block_pool_check(struct block_pool *pool, struct error *err)
{
    const bool now = pool->walk++ % CHECK_EVERY == 0;
    enum error_code e = now || pool->free <= QUEUE_SHORT ? walk_queue(pool, err) : OK;
    if (!e && (now || pool->blocks <= POOL_SHORT)) e = count_users(pool, err);
    return e;
}
