#include "emulated_devices/device/arena.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/trace.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory of a block is  [ guard | the caller's bytes | guard ].  Every build has guards, so that the layout does
 * not depend on poison; they are written and checked only with poison. */
struct arena_block {
    struct arena_block *next;           /* in the list of held blocks, or of spare blocks */
    unsigned char *data;                /* the caller's bytes */
    uint64_t bytes;
    enum arena_tag tag;
    bool uncounted;                     /* passed on: no longer counted as the device's memory */
    bool on_host;                       /* of a backend without numbers, though it has some */
};

enum { GUARD = 64 };

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

const char *doing_describe(const struct doing *d, char *text, size_t size)
{
    char micro[40] = "", layer[24] = "";
    if (d->pass == NULL) return snprintf(text, size, "before the first pass"), text;
    if (d->micro >= 0) snprintf(micro, sizeof micro, " of microbatch %d", d->micro);
    if (d->part && strcmp(d->part, "layer") == 0) snprintf(layer, sizeof layer, " %d", d->layer);
    snprintf(text, size, "%s%s%s%s%s%s%s", d->pass, micro, d->part ? ", " : "", d->part ? d->part : "", layer,
             d->what ? ", " : "", d->what ? d->what : "");
    return text;
}

void arena_open(struct arena *a, struct device *d, uint64_t budget)
{
    *a = (struct arena){ .device = d, .budget = budget };
#ifndef NDEBUG
    a->poison = d->backend->has_numbers;        /* others have neither poison nor guards */
#endif
}

static void give_back(struct arena *a, struct arena_block *b)
{
    if (b->on_host) free(b->data - GUARD);
    else a->device->backend->release(a->device, b->data - GUARD, b->bytes + 2 * GUARD);
    free(b);
}

void arena_close(struct arena *a)
{
    for (int i = 0; i < ARENA_LISTS; i++)
        while (a->held[i] != NULL) arena_free(a, a->held[i]->data);
    for (int i = 0; i < ARENA_LISTS; i++)
        while (a->spare[i] != NULL) {
            struct arena_block *b = a->spare[i];
            a->spare[i] = b->next;
            give_back(a, b);
        }
}

static int list_of(uint64_t key) { return (int)(key * 0x9E3779B97F4A7C15u >> 58); }

/* The pointer to the block with this address in the list of held blocks.  @return NULL if there is none. */
static struct arena_block **held_at(struct arena *a, const void *data)
{
    struct arena_block **at = &a->held[list_of((uint64_t)(uintptr_t)data)];
    while (*at != NULL && (*at)->data != data) at = &(*at)->next;
    return *at != NULL ? at : NULL;
}

/* Training steps request the same sizes again and again.  New memory from the system costs a page fault for each 4 KB,
 * which for large tensors takes longer than computing with them.  So freed blocks are kept for the next request of
 * their size. */
static struct arena_block *take_spare(struct arena *a, uint64_t bytes, bool on_host)
{
    for (struct arena_block **at = &a->spare[list_of(bytes)]; *at != NULL; at = &(*at)->next)
        if ((*at)->bytes == bytes && (*at)->on_host == on_host) {
            struct arena_block *b = *at;
            *at = b->next;
            a->spare_bytes -= bytes;
            return b;
        }
    return NULL;
}

static struct arena_block *take_new(struct arena *a, uint64_t bytes, bool on_host)
{
    struct arena_block *b = bytes <= SIZE_MAX - 3 * GUARD ? malloc(sizeof *b) : NULL;
    unsigned char *memory = NULL;
    /* The block has room for both guards, and its data is aligned as the backend's is. */
    if (b != NULL && on_host) memory = aligned_alloc(GUARD, ((size_t)bytes + 3 * GUARD - 1) / GUARD * GUARD);
    else if (b != NULL) memory = a->device->backend->allocate(a->device, (size_t)bytes + 2 * GUARD);
    if (memory == NULL) {
        free(b);
        return NULL;
    }
    b->data = memory + GUARD;
    return b;
}

/* Held and spare blocks together never exceed the device's peak. */
static void keep_or_free(struct arena *a, struct arena_block *b)
{
    if (a->poison || a->now.total + a->spare_bytes + b->bytes > a->peak.total) {
        give_back(a, b);
        return;
    }
    struct arena_block **list = &a->spare[list_of(b->bytes)];
    b->next = *list;
    *list = b;
    a->spare_bytes += b->bytes;
}

/* The arena's own looks at memory are no uses of it, so they are not watched. */
static unsigned char *own_view(const struct arena *a, void *data, uint64_t bytes)
{
    return a->device->backend->host_write(a->device, data, (size_t)bytes);
}

void arena_poison(const struct arena *a, void *data, uint64_t bytes)
{
    if (bytes == 0) return;
    unsigned char *const view = own_view(a, data, bytes), *p = view;
    for (; bytes >= sizeof POISON; p += sizeof POISON, bytes -= sizeof POISON) memcpy(p, &POISON, sizeof POISON);
    memcpy(p, &POISON, bytes);
    host_done(a->device, view);
}

bool arena_is_poison(const struct arena *a, const void *data, uint64_t bytes)
{
    if (bytes == 0) return true;
    const unsigned char *const view = a->device->backend->host_read(a->device, data, (size_t)bytes), *p = view;
    uint64_t differs = 0, word = POISON;
    for (; bytes >= sizeof POISON; p += sizeof POISON, bytes -= sizeof POISON) {
        memcpy(&word, p, sizeof word);
        differs |= word ^ POISON;
    }
    const bool same = differs == 0 && memcmp(p, &POISON, bytes) == 0;
    host_done(a->device, view);
    return same;
}

static void write_guard(struct arena *a, unsigned char *guard)
{
    unsigned char *view = own_view(a, guard, GUARD);
    memset(view, GUARD_BYTE, GUARD);
    host_done(a->device, view);
}

/* @return the number of intact bytes of a guard, from `first` on in steps of `step`. */
static int guard_intact(struct arena *a, const unsigned char *guard, int first, int step)
{
    const unsigned char *view = host_read(a->device, guard, GUARD);
    int n = 0;
    while (n < GUARD && view[first + n * step] == GUARD_BYTE) n++;
    host_done(a->device, view);
    return n;
}

/* If not, *offset is the overwritten byte, counted from the first byte of the data. */
static bool guards_intact(struct arena *a, const struct arena_block *b, int64_t *offset)
{
    const int front = guard_intact(a, b->data - GUARD, GUARD - 1, -1), back = guard_intact(a, b->data + b->bytes, 0, 1);
    *offset = front < GUARD ? -1 - front : (int64_t)b->bytes + back;
    return front == GUARD && back == GUARD;
}

static void note(const struct arena *a)
{
    const struct clock *c = &a->device->clock;
    if (c->trace != NULL) trace_arena(c->trace, c->now, &a->now);
}

static void count(struct arena *a, enum arena_tag tag, uint64_t bytes)
{
    a->now.tag[tag] += bytes;
    a->now.total += bytes;
    a->blocks[tag]++;
    if (a->now.tag[tag] > a->peak.tag[tag]) a->peak.tag[tag] = a->now.tag[tag];
    /* The report of the peak names what was done then. */
    if (a->now.total > a->peak.total) {
        a->peak.total = a->now.total;
        a->at_peak = a->now;
        a->doing_at_peak = a->doing;
        memcpy(a->blocks_at_peak, a->blocks, sizeof a->blocks);
    }
    note(a);
}

static void *alloc(struct arena *a, enum arena_tag tag, uint64_t bytes, bool on_host)
{
    struct arena_block *b = take_spare(a, bytes, on_host);
    if (b == NULL) b = take_new(a, bytes, on_host);
    if (b == NULL) return NULL;

    struct arena_block **list = &a->held[list_of((uint64_t)(uintptr_t)b->data)];
    /* A spare block begins a new life: all fields but its memory. */
    *b = (struct arena_block){ .next = *list, .data = b->data, .bytes = bytes, .tag = tag, .on_host = on_host };
    *list = b;
    if (on_host) memset(b->data, 0, (size_t)bytes);     /* as its other memory shows zeros, also in a run given up */
    count(a, tag, bytes);
    if (a->poison) {
        write_guard(a, b->data - GUARD), write_guard(a, b->data + bytes);
        arena_poison(a, b->data, bytes);
    }
    return b->data;
}

void *arena_alloc(struct arena *a, enum arena_tag tag, uint64_t bytes) { return alloc(a, tag, bytes, false); }

void *arena_alloc_list(struct arena *a, enum arena_tag tag, uint64_t bytes)
{
    return alloc(a, tag, bytes, !a->device->backend->has_numbers);
}

void arena_free(struct arena *a, void *data)
{
    if (data == NULL) return;
    struct arena_block **at = held_at(a, data), *b = *at;
    int64_t offset;

    /* A message may still use the block: then its memory stays. */
    const bool stays = device_used(a->device, MEMORY_FREED, data, b->bytes, NULL);
    flight_freed(a->flight, data, b->bytes);
    if (a->poison && !guards_intact(a, b, &offset)) {
        fprintf(stderr, "arena: something wrote at byte %lld of a block of %llu bytes (%s)\n",
                (long long)offset, (unsigned long long)b->bytes, arena_tag_name(b->tag));
        abort();
    }
    if (a->poison) arena_poison(a, data, b->bytes);
    arena_hand_over(a, data);
    if (stays) return;                          /* until arena_close */
    *at = b->next;
    keep_or_free(a, b);
}

const void *arena_look(const struct arena *a, const void *p, enum arena_tag *tag, uint64_t *bytes)
{
    for (int i = 0; i < ARENA_LISTS; i++)
        for (const struct arena_block *b = a->held[i]; b != NULL; b = b->next) {
            const unsigned char *at = p;
            if (at < b->data || at >= b->data + b->bytes) continue;
            *tag = b->tag, *bytes = b->bytes;
            return b->data;
        }
    return NULL;
}

void arena_hand_over(struct arena *a, void *data)
{
    struct arena_block *b = *held_at(a, data);
    if (b->uncounted) return;
    b->uncounted = true;
    a->now.tag[b->tag] -= b->bytes;
    a->now.total -= b->bytes;
    a->blocks[b->tag]--;
    note(a);
}

bool arena_over(const struct arena *a)
{
    return a->budget != 0 && a->peak.total > a->budget;
}

void arena_reset_peak(struct arena *a)
{
    a->peak = a->at_peak = a->now;
    a->doing_at_peak = a->doing;
    memcpy(a->blocks_at_peak, a->blocks, sizeof a->blocks);
}
