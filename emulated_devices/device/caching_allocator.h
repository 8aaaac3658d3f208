/* caching_allocator.h -- a model of PyTorch's caching allocator: how many bytes a program reserves for its tensors.
 *
 * The model computes addresses and sizes only; no memory is touched.  Rules, with the names of the released code:
 *
 *   rounding    a request counts as a multiple of 512 bytes, at least 512 (kMinBlockSize)
 *   pools       up to 1 MiB a request is small (kSmallSize), above it large; the pools share no memory
 *   segments    a small segment has 2 MiB (kSmallBuffer); a request below 10 MiB (kMinLargeAlloc) takes a segment of
 *               20 MiB (kLargeBuffer); a larger one takes a multiple of 2 MiB (kRoundLarge)
 *   best fit    the smallest free block of the stream that is large enough; of equals, the lowest address
 *   splitting   a small block is split if 512 bytes are left, a large one if more than 1 MiB is left
 *   merging     a freed block joins its free neighbours of the same segment
 *   streams     a freed block serves only the stream for which the block was allocated
 *   expandable  (expandable_segments:True) a stream has one segment a pool, which grows by pages of 2 MiB (small) or
 *               20 MiB (large); every block is split if 512 bytes are left; the block at the end, which can grow, is
 *               taken last
 *
 * The model has no limit: a real program that meets its device's limit first gives free segments back.
 *
 * Source  pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp at 001074d: round_size, get_allocation_size,
 *         get_free_block, should_split, free_block, try_merge_blocks, try_allocate_expandable_block.
 * Called  train/memory_of/ replays the allocations of a step; tests/devices/test_caching_allocator.c.
 */
#ifndef ORRERY_CACHING_ALLOCATOR_H
#define ORRERY_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

enum { CACHING_STREAMS = 3, CACHING_POOLS = 2 };

struct caching_block;

/* allocated: bytes of the blocks in use.  reserved: bytes of all segments. */
struct caching_use { uint64_t allocated, reserved; };

/* caching_open fills in all fields; caching_close frees the blocks. */
struct caching_allocator {
    bool expandable;                    /* segments grow (expandable_segments:True) */
    struct caching_block *blocks, *back;        /* all blocks of all segments: first free ones, then those in use */
    struct caching_block *end[CACHING_STREAMS][CACHING_POOLS];  /* the last blocks of expandable segments, or NULL */
    uint64_t next;                      /* the address of the next segment */
    struct caching_use now, peak;       /* the peaks of both numbers may be at different times */
};

/** Start without any segment.  Local. */
void caching_open(struct caching_allocator *, bool expandable);
void caching_close(struct caching_allocator *);

/** Allocate a block.  Local.
 *  @param bytes   of the request, > 0.
 *  @param stream  0 .. CACHING_STREAMS-1.
 *  @return the block; NULL: this machine has no memory for the list. */
struct caching_block *caching_allocate(struct caching_allocator *, uint64_t bytes, int stream);

/** Free a block of caching_allocate; NULL is allowed. */
void caching_free(struct caching_allocator *, struct caching_block *);

/** The address and the size of a block in use. */
uint64_t caching_address(const struct caching_block *);
uint64_t caching_size(const struct caching_block *);

#endif
