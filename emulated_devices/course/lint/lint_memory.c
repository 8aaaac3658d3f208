/* lint_memory.c -- memory of a lint, in chunks, and its names (lint_memory.h).  words.c and cells.c call lint_take().
 * Errors: none; `full` says that there was no memory. */
#include "emulated_devices/course/lint/lint_memory.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 18 };

struct lint_chunk { struct lint_chunk *before; size_t used; max_align_t bytes[CHUNK / sizeof(max_align_t)]; };

/* A pool that has run out gives the same bytes again: whoever writes them does no harm. */
static void *lint_spare(struct lint_memory *pool, size_t bytes)
{
    static max_align_t nothing[LINT_PIECE / sizeof(max_align_t)];
    pool->full = true;
    if (pool->spare == NULL) pool->spare = malloc(LINT_PIECE);
    void *const spare = pool->spare ? pool->spare : nothing;
    return memset(spare, 0, bytes);
}

void *lint_take(struct lint_memory *pool, size_t bytes)
{
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (pool->most > 0 && pool->taken + bytes > pool->most) return lint_spare(pool, bytes);
    if (pool->chunk == NULL || pool->chunk->used + bytes > sizeof pool->chunk->bytes) {
        struct lint_chunk *chunk = malloc(sizeof *chunk);
        if (chunk == NULL) return lint_spare(pool, bytes);
        chunk->before = pool->chunk, chunk->used = 0, pool->chunk = chunk;
    }
    void *at = (char *)pool->chunk->bytes + pool->chunk->used;
    pool->chunk->used += bytes, pool->taken += bytes;
    return memset(at, 0, bytes);
}

void lint_drop(struct lint_memory *pool)
{
    while (pool->chunk) {
        struct lint_chunk *const before = pool->chunk->before;
        free(pool->chunk);
        pool->chunk = before;
    }
    free(pool->spare);
    *pool = (struct lint_memory){ .most = pool->most };
}

static uint32_t names_hash(const char *text, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

/* Twice as many slots, and room for as many names as half of them. */
static bool names_grow(struct names *names)
{
    const int slots = names->slots ? 2 * names->slots : 1024;
    int *slot = calloc((size_t)slots, sizeof *slot);
    const char **text = realloc(names->text, (size_t)slots / 2 * sizeof *text);
    if (text) names->text = text, names->room = text && slot ? slots / 2 : names->room;
    if (text == NULL || slot == NULL) return free(slot), false;
    for (int i = 0; i < names->count; i++) {
        uint32_t at = names_hash(text[i], strlen(text[i])) % (uint32_t)slots;
        while (slot[at]) at = (at + 1) % (uint32_t)slots;
        slot[at] = i + 1;
    }
    free(names->slot);
    names->slot = slot, names->slots = slots;
    return true;
}

int names_number(struct names *names, const char *text, size_t length)
{
    if (length >= 200) length = 200;
    if (names->count >= names->room && !names_grow(names)) return names->pool->full = true, 0;
    uint32_t at = names_hash(text, length) % (uint32_t)names->slots;
    for (; names->slot[at]; at = (at + 1) % (uint32_t)names->slots) {
        const char *const there = names->text[names->slot[at] - 1];
        if (strncmp(there, text, length) == 0 && there[length] == 0) return names->slot[at] - 1;
    }
    char *copy = lint_take(names->pool, length + 1);
    memcpy(copy, text, length);
    names->text[names->count] = copy;
    names->slot[at] = names->count + 1;
    return names->count++;
}

const char *names_text(const struct names *names, int number)
{
    return number >= 0 && number < names->count ? names->text[number] : "";
}

void names_free(struct names *names)
{
    free(names->text), free(names->slot);
    *names = (struct names){ .pool = names->pool };
}
