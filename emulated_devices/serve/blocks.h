/* blocks.h -- the blocks of a key and value cache: which are free, who uses them, and what tokens they hold.
 *
 * The cache of a device is cut into blocks of a few tokens each.  A sequence has a list of blocks, in the order of its
 * positions; a block may be in several lists, if their tokens up to its end are the same.  This file counts and hands
 * out numbers of blocks.  The keys and values themselves are on devices (pages.h).
 *
 * A full block has a hash of its tokens and of the hash of the block before it, so equal hashes mean equal prefixes.  A
 * block that nobody uses keeps its hash, and can be found, until another sequence takes its memory.  Free blocks stand
 * in a queue: the one that was released first is taken first.
 *
 * Source  W. Kwon et al., "Efficient memory management for large language model serving with PagedAttention",
 *         arXiv:2309.06180; the order of the queue and of releases is that of vLLM's v1 block pool.
 *
 * scheduler.c calls these functions.  Nothing here knows of devices or time.
 */
#ifndef ORRERY_BLOCKS_H
#define ORRERY_BLOCKS_H

#include "ref/error.h"
#include "ref/io/sha256.h"
#include <stdbool.h>
#include <stdint.h>

enum { NO_BLOCK = -1, QUEUE_SHORT = 1024, POOL_SHORT = 4096, CHECK_EVERY = 256 };

/* One block of the cache. */
struct kv_block {
    int64_t before, after;              /* its neighbours in the queue of free blocks; NO_BLOCK: none */
    bool hashed;                        /* it is full, and can be found by `hash` */
    struct sha256_digest hash;            /* of its tokens and of all before them */
    int64_t next;                       /* the next block in the same bucket of hashes; NO_BLOCK: none */
};

struct block_pool {
    int64_t blocks, tokens;             /* how many there are; tokens that each has room for */
    struct kv_block *block;             /* [blocks] */
    int32_t *users;                     /* [blocks] sequences that have each in their lists; side by side, since all are
                                         * added up in checks */
    int64_t uses;                       /* their sum */
    int64_t walk;                       /* checks so far: a large pool is gone through in some of them */
    int64_t free, first, last;          /* how many are free; both ends of their queue */
    int64_t buckets, *bucket;           /* [buckets] the first block with a hash of this bucket */
};

/** A pool of blocks, all free, in the order of their numbers.  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code block_pool_open(struct block_pool *, int64_t blocks, int64_t tokens, struct error *);
void block_pool_close(struct block_pool *);

/** Blocks that hold this many tokens. */
int64_t blocks_for(const struct block_pool *, int64_t tokens);

/** Take free blocks from the front of the queue; they lose their hashes.  There must be as many. */
void blocks_take(struct block_pool *, int64_t *list, int64_t count);

/** One more sequence uses a block, which leaves the queue if nobody did. */
void block_use(struct block_pool *, int64_t block);

/** A sequence uses no block of its list any more.  The last block goes first, so that of a prefix nobody uses the end
 *  is taken before the beginning. */
void blocks_release(struct block_pool *, const int64_t *list, int64_t count);

/** The hash of a full block.  @param before  that of the block before it; NULL: the block is the first.
 *  @param token  [count] its tokens. */
struct sha256_digest block_hash(const struct sha256_digest *before, const int32_t *token, int64_t count);

/** Let a block be found by its hash.  Another block with this hash stays the one that is found. */
void block_register(struct block_pool *, int64_t block, const struct sha256_digest *hash);

/** The block that was first registered with a hash; NO_BLOCK: there is none. */
int64_t block_find(const struct block_pool *, const struct sha256_digest *hash);

/** Whether the queue and the counts fit together: every block is used or free, and each free one is in the queue once.
 *  A queue of more than QUEUE_SHORT blocks, and a pool of more than POOL_SHORT, are gone through each CHECK_EVERY-th
 *  time alone: so long a walk takes longer than an iteration without numbers.
 *  @return OK; ERR_INTERNAL names the first block that does not fit. */
enum error_code block_pool_check(struct block_pool *, struct error *);

#endif
