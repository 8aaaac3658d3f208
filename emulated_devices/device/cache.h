/* cache.h -- which blocks of a drive its host keeps in memory: those that are asked for most often.
 *
 * Source  D. Yu et al., "MoESys: a distributed and efficient mixture-of-experts training and inference system",
 *         arXiv:2205.10034, algorithm 2
 * Errors  none
 *
 *   request of a block    is it kept?     a hit: its count grows by 1
 *                         is there room?  it is fetched, with a count of 1
 *                         else            the block with the least count makes way, if this is at least `threshold`;
 *                                         the new one is fetched, with a count of 1
 *                                         if it is less, nothing changes: the request passes the cache by
 *   every `every` requests, after the request, all counts are multiplied by `decay`
 *
 * What the paper leaves open: of equal counts the lowest number makes way; blocks differ in size, so several may have
 * to go; one that is larger than all room passes by.  A changed block is written to the drive when it makes way.  A
 * write is no request: it changes a block that is kept, and else goes to the drive.
 *
 * tier.c calls this file and does what it says; nothing here moves bytes.
 */
#ifndef ORRERY_CACHE_H
#define ORRERY_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* A block of the drive: its size, the decayed count of its requests, and whether the host keeps it. `changed`: it
 * differs from the drive, to which it is written when it makes way. */
struct cache_block { uint64_t bytes; double count; bool kept, changed; };

struct cache {
    uint64_t room;                      /* bytes; 0: nothing is kept */
    double threshold, decay;            /* the least count that makes way for a new block; the factor on all counts */
    int64_t every;                      /* 0: counts are never decayed */
    int blocks;                         /* blocks of the drive, kept or not */
    struct cache_block *block;          /* [blocks] of the caller, with their sizes */
    uint64_t used, hits, requests;      /* bytes; so far */
};

/* A request moves the block from drive to host, if it is taken, and before that writes the bytes that make way. */
struct cache_moves { bool hit, taken; uint64_t written; };

/** Ask for a block. */
struct cache_moves cache_request(struct cache *, int block);

/** Change a block.  @return whether it is kept; if not, it must be written to the drive. */
bool cache_change(struct cache *, int block);

#endif
