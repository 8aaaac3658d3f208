/* hash.h -- FNV-1a of bytes, to compare bits without sending them.
 *
 * The callers are replicas.c (copies of weights), digest.c and bits.c (keys of plans). A hash starts from
 * HASH_START. Two equal hashes stand for equal bytes; nothing here reports an error.
 */
#ifndef ORRERY_HASH_H
#define ORRERY_HASH_H

#include <stddef.h>
#include <stdint.h>

static const uint64_t HASH_START = 0xcbf29ce484222325u;

/* h = (h xor byte) times the FNV prime, byte by byte.  The result is the next call's h, so pieces of a vector can be
 * hashed one after another. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    for (const unsigned char *b = data; bytes > 0; bytes--, b++) h = (h ^ *b) * 0x100000001b3u;
    return h;
}

#endif
