/* hash.h -- FNV-1a of bytes, to compare bits without sending them. */
#ifndef ORRERY_HASH_H
#define ORRERY_HASH_H

#include <stddef.h>
#include <stdint.h>

static const uint64_t HASH_START = 0xcbf29ce484222325u;

static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    for (const unsigned char *b = data; bytes > 0; bytes--, b++) h = (h ^ *b) * 0x100000001b3u;
    return h;
}

#endif
