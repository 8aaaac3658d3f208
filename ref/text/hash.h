/* hash.h -- a hash of short texts.  vocabulary.c and models/bpe.c include it for their tables. */
#ifndef ORRERY_TEXT_HASH_H
#define ORRERY_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_eight(const char *text)
{
    uint64_t eight;
    memcpy(&eight, text, sizeof eight);
    return eight;
}

/* Up to 7 bytes as a number.  Four bytes are read at both ends, which may overlap; fewer are read one by one. */
static inline uint64_t hash_rest(const char *text, size_t bytes)
{
    uint32_t low, high;
    if (bytes < 4)
        return bytes == 0 ? 0 : (uint64_t)(uint8_t)text[0] << 16 | (uint64_t)(uint8_t)text[bytes / 2] << 8 |
               (uint8_t)text[bytes - 1];
    memcpy(&low, text, sizeof low), memcpy(&high, text + bytes - sizeof high, sizeof high);
    return (uint64_t)high << 32 | low;
}

/** The text is hashed 8 bytes at a time; its length is part of the beginning. */
static inline uint32_t hash_text(const char *text, size_t bytes)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ bytes;
    for (; bytes >= 8; text += 8, bytes -= 8) h = (h ^ hash_eight(text)) * 0xD6E8FEB86659FD93u, h ^= h >> 32;
    h = (h ^ hash_rest(text, bytes)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h ^ h >> 32);
}

#endif
