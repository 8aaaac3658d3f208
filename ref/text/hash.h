/* hash.h -- a hash of short texts.  vocabulary.c and models/bpe.c include it for their tables. */
#ifndef ORRERY_TEXT_HASH_H
#define ORRERY_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** The text is hashed 8 bytes at a time; its length is part of the last word. */
static inline uint32_t hash_text(const char *text, size_t bytes)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        uint64_t eight;
        memcpy(&eight, text, 8);
        h = (h ^ eight) * 0xD6E8FEB86659FD93u, h ^= h >> 32;
    }
    uint64_t rest = bytes;
    for (size_t i = 0; i < bytes; i++) rest = rest << 8 | (uint8_t)text[i];
    h = (h ^ rest) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h ^ h >> 32);
}

#endif
