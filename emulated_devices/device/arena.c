#include "emulated_devices/device/arena.h"
#include "emulated_devices/device/flight.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block in memory:  [ struct arena_block | guard | the caller's bytes | guard ].
 * Guards are there in every build, so that the layout does not depend on poison; they are written and checked only with it. */
struct arena_block {
    struct arena_block *previous, *next;
    uint64_t bytes;
    enum arena_tag tag;
    bool uncounted;                     /* handed over: no longer the device's memory */
};

enum { ALIGNMENT = 64, GUARD = 64, FRONT = 128 };   /* FRONT: the header, padded, and the guard before the data */
_Static_assert(sizeof(struct arena_block) <= FRONT - GUARD, "the header must leave room for the guard");

/* A quiet NaN both as two floats and as one double, and easy to recognise in a debugger. */
static const uint64_t POISON = 0x7ff8dead7ff8dead;
static const unsigned char GUARD_BYTE = 0xa5;

const char *arena_tag_name(enum arena_tag tag)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        ARENA_TAGS(X)
#undef X
    };
    return tag < ARENA_TAG_COUNT ? name[tag] : "unknown";
}

void arena_open(struct arena *a, uint64_t budget)
{
    *a = (struct arena){ .budget = budget };
#ifndef NDEBUG
    a->poison = true;
#endif
}

void arena_close(struct arena *a)
{
    while (a->blocks != NULL) arena_free(a, (unsigned char *)a->blocks + FRONT);
    for (int i = 0; i < ARENA_SPARE_LISTS; i++)
        while (a->spare[i] != NULL) {
            struct arena_block *b = a->spare[i];
            a->spare[i] = b->next;
            free(b);
        }
}

/* A training step asks for the same sizes again and again.  Memory fresh from the system costs a page fault for each 4 KB,
 * which for large tensors is more than what is computed on them: freed blocks wait here for the next request of their size. */
static struct arena_block **spare_list(struct arena *a, uint64_t bytes)
{
    return &a->spare[bytes * 0x9E3779B97F4A7C15u >> 58];
}

static struct arena_block *take_spare(struct arena *a, uint64_t bytes)
{
    for (struct arena_block **at = spare_list(a, bytes); *at != NULL; at = &(*at)->next)
        if ((*at)->bytes == bytes) {
            struct arena_block *b = *at;
            *at = b->next;
            a->spare_bytes -= bytes;
            return b;
        }
    return NULL;
}

/* Together with what is in use, spare blocks never take more than the device has held at its peak. */
static void keep_or_free(struct arena *a, struct arena_block *b)
{
    if (a->poison || a->now.total + a->spare_bytes + b->bytes > a->peak.total) {
        free(b);
        return;
    }
    struct arena_block **list = spare_list(a, b->bytes);
    b->next = *list;
    *list = b;
    a->spare_bytes += b->bytes;
}

void arena_poison(void *data, uint64_t bytes)
{
    unsigned char *p = data;
    for (; bytes >= sizeof POISON; p += sizeof POISON, bytes -= sizeof POISON) memcpy(p, &POISON, sizeof POISON);
    memcpy(p, &POISON, bytes);
}

static void write_guards(unsigned char *data, uint64_t bytes)
{
    memset(data - GUARD, GUARD_BYTE, GUARD);
    memset(data + bytes, GUARD_BYTE, GUARD);
}

/* If not, *offset says which byte was overwritten, counted from the first of the data. */
static bool guards_intact(const unsigned char *data, uint64_t bytes, int64_t *offset)
{
    for (int i = 1; i <= GUARD; i++) {
        *offset = -i;
        if (data[-i] != GUARD_BYTE) return false;
    }
    for (int i = 0; i < GUARD; i++) {
        *offset = (int64_t)bytes + i;
        if (data[bytes + i] != GUARD_BYTE) return false;
    }
    return true;
}

static void count(struct arena *a, enum arena_tag tag, uint64_t bytes)
{
    a->now.tag[tag] += bytes;
    a->now.total += bytes;
    if (a->now.tag[tag] > a->peak.tag[tag]) a->peak.tag[tag] = a->now.tag[tag];
    if (a->now.total > a->peak.total) {
        a->peak.total = a->now.total;
        a->at_peak = a->now;
    }
}

void *arena_alloc(struct arena *a, enum arena_tag tag, uint64_t bytes)
{
    if (bytes > SIZE_MAX - FRONT - GUARD - ALIGNMENT) return NULL;
    const size_t whole = (FRONT + (size_t)bytes + GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct arena_block *b = take_spare(a, bytes);
    if (b == NULL) b = aligned_alloc(ALIGNMENT, whole);
    if (b == NULL) return NULL;

    *b = (struct arena_block){ .next = a->blocks, .bytes = bytes, .tag = tag };
    if (b->next != NULL) b->next->previous = b;
    a->blocks = b;
    count(a, tag, bytes);

    unsigned char *data = (unsigned char *)b + FRONT;
    if (a->poison) {
        write_guards(data, bytes);
        arena_poison(data, bytes);
    }
    return data;
}

void arena_free(struct arena *a, void *p)
{
    if (p == NULL) return;
    unsigned char *data = p;
    struct arena_block *b = (struct arena_block *)(data - FRONT);
    int64_t offset;

    flight_freed(a->flight, data, b->bytes);
    if (a->poison && !guards_intact(data, b->bytes, &offset)) {
        fprintf(stderr, "arena: something wrote at byte %lld of a block of %llu bytes (%s)\n",
                (long long)offset, (unsigned long long)b->bytes, arena_tag_name(b->tag));
        abort();
    }
    if (a->poison) arena_poison(data, b->bytes);
    if (b->previous != NULL) b->previous->next = b->next;
    else a->blocks = b->next;
    if (b->next != NULL) b->next->previous = b->previous;
    arena_hand_over(a, p);
    keep_or_free(a, b);
}

bool arena_find(const struct arena *a, const void *p, enum arena_tag *tag)
{
    for (const struct arena_block *b = a->blocks; b != NULL; b = b->next) {
        const unsigned char *data = (const unsigned char *)b + FRONT, *at = p;
        if (at < data || at >= data + b->bytes) continue;
        *tag = b->tag;
        return true;
    }
    return false;
}

void arena_hand_over(struct arena *a, void *p)
{
    struct arena_block *b = (struct arena_block *)((unsigned char *)p - FRONT);
    if (b->uncounted) return;
    b->uncounted = true;
    a->now.tag[b->tag] -= b->bytes;
    a->now.total -= b->bytes;
}

bool arena_over(const struct arena *a)
{
    return a->budget != 0 && a->peak.total > a->budget;
}

void arena_reset_peak(struct arena *a)
{
    a->peak = a->at_peak = a->now;
}
