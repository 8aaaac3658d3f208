/* arena.c -- allocates, counts and frees the memory of a device, with guards and poison in debug builds.
 *
 * device.c, comm/, collectives/, model/ and schemes/ call this file; arena.h declares its functions.  NULL means that
 * the backend has no memory.  A guard that was overwritten ends the program with abort().
 */
#include "emulated_devices/device/arena_list.h"
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
    struct doing doing;                 /* of the device when the block was allocated */
    const char *tensor;                 /* what the block is for (arena_name); or NULL */
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

/* The pass comes first, then microbatch, part, layer and tensor, as far as they are known. */
const char *doing_describe(const struct doing *doing, char *text, size_t size)
{
    char micro[40] = "", layer[24] = "";
    if (doing->pass == NULL) return snprintf(text, size, "before the first pass"), text;
    if (doing->micro >= 0) snprintf(micro, sizeof micro, " of microbatch %d", doing->micro);
    if (doing->part && strcmp(doing->part, "layer") == 0) snprintf(layer, sizeof layer, " %d", doing->layer);
    snprintf(text, size, "%s%s%s%s%s%s%s", doing->pass, micro, doing->part ? ", " : "",
             doing->part ? doing->part : "", layer, doing->what ? ", " : "", doing->what ? doing->what : "");
    return text;
}

void arena_open(struct arena *arena, struct device *device, uint64_t budget)
{
    *arena = (struct arena){ .device = device, .budget = budget };
#ifndef NDEBUG
    arena->poison = device->backend->has_numbers;        /* others have neither poison nor guards */
#endif
}

/* Give a block's memory back to the backend, or to the C library for a list of a backend without numbers. */
static void arena_give_back(struct arena *arena, struct arena_block *block)
{
    if (block->on_host) free(block->data - GUARD);
    else arena->device->backend->release(arena->device, block->data - GUARD, block->bytes + 2 * GUARD);
    free(block);
}

void arena_close(struct arena *arena)
{
    for (int i = 0; i < ARENA_LISTS; i++)
        while (arena->held[i] != NULL) arena_free(arena, arena->held[i]->data);
    for (int i = 0; i < ARENA_LISTS; i++)
        while (arena->spare[i] != NULL) {
            struct arena_block *b = arena->spare[i];
            arena->spare[i] = b->next;
            arena_give_back(arena, b);
        }
}

/* The top 6 bits of the product select one of 64 lists, for addresses and for sizes. */
static int list_of(uint64_t key) { return (int)(key * 0x9E3779B97F4A7C15u >> 58); }

/* The pointer to the block with this address in the list of held blocks.  @return NULL if there is none. */
static struct arena_block **held_at(struct arena *arena, const void *data)
{
    struct arena_block **at = &arena->held[list_of((uint64_t)(uintptr_t)data)];
    while (*at != NULL && (*at)->data != data) at = &(*at)->next;
    return *at != NULL ? at : NULL;
}

/* Training steps request the same sizes again and again.  New memory from the system costs a page fault for each 4 KB,
 * which for large tensors takes longer than computing with them.  So freed blocks are kept for the next request of
 * their size. */
static struct arena_block *take_spare(struct arena *arena, uint64_t bytes, bool on_host)
{
    for (struct arena_block **at = &arena->spare[list_of(bytes)]; *at != NULL; at = &(*at)->next)
        if ((*at)->bytes == bytes && (*at)->on_host == on_host) {
            struct arena_block *b = *at;
            *at = b->next;
            arena->spare_bytes -= bytes;
            return b;
        }
    return NULL;
}

/* A new block from the backend; the caller fills in all fields but the address. */
static struct arena_block *take_new(struct arena *arena, uint64_t bytes, bool on_host)
{
    struct arena_block *b = bytes <= SIZE_MAX - 3 * GUARD ? malloc(sizeof *b) : NULL;
    unsigned char *memory = NULL;
    /* The block has room for both guards, and its data is aligned as the backend's is. */
    if (b != NULL && on_host) memory = aligned_alloc(GUARD, ((size_t)bytes + 3 * GUARD - 1) / GUARD * GUARD);
    else if (b != NULL) memory = arena->device->backend->allocate(arena->device, (size_t)bytes + 2 * GUARD);
    if (memory == NULL) {
        free(b);
        return NULL;
    }
    b->data = memory + GUARD;
    return b;
}

/* Keep a freed block for its size, or give its memory back.  Held and spare blocks together never exceed the
 * device's peak. */
static void keep_or_free(struct arena *arena, struct arena_block *block)
{
    if (arena->poison || arena->now.total + arena->spare_bytes + block->bytes > arena->peak.total) {
        arena_give_back(arena, block);
        return;
    }
    struct arena_block **list = &arena->spare[list_of(block->bytes)];
    block->next = *list;
    *list = block;
    arena->spare_bytes += block->bytes;
}

/* The arena's own looks at memory are no uses of it, so they are not watched. */
static unsigned char *own_view(const struct arena *arena, void *data, uint64_t bytes)
{
    return arena->device->backend->host_write(arena->device, data, (size_t)bytes);
}

/* The last bytes get the beginning of the pattern. */
void arena_poison(const struct arena *arena, void *data, uint64_t bytes)
{
    if (bytes == 0) return;
    unsigned char *const view = own_view(arena, data, bytes), *p = view;
    for (; bytes >= sizeof POISON; p += sizeof POISON, bytes -= sizeof POISON) memcpy(p, &POISON, sizeof POISON);
    memcpy(p, &POISON, bytes);
    host_done(arena->device, view);
}

void arena_poison_all(const struct arena *arena)
{
    for (int i = 0; i < ARENA_LISTS; i++)
        for (const struct arena_block *b = arena->held[i]; b != NULL; b = b->next)
            if (!b->on_host) arena_poison(arena, b->data, b->bytes);
}

bool arena_is_poison(const struct arena *arena, const void *data, uint64_t bytes)
{
    if (bytes == 0) return true;
    const unsigned char *const view = arena->device->backend->host_read(arena->device, data, (size_t)bytes), *p = view;
    uint64_t differs = 0, word = POISON;
    for (; bytes >= sizeof POISON; p += sizeof POISON, bytes -= sizeof POISON) {
        memcpy(&word, p, sizeof word);
        differs |= word ^ POISON;
    }
    const bool same = differs == 0 && memcmp(p, &POISON, bytes) == 0;
    host_done(arena->device, view);
    return same;
}

static void write_guard(struct arena *arena, unsigned char *guard)
{
    unsigned char *view = own_view(arena, guard, GUARD);
    memset(view, GUARD_BYTE, GUARD);
    host_done(arena->device, view);
}

/* @return the number of intact bytes of a guard, from `first` on in steps of `step`. */
static int guard_intact(struct arena *arena, const unsigned char *guard, int first, int step)
{
    const unsigned char *view = host_read(arena->device, guard, GUARD);
    int n = 0;
    while (n < GUARD && view[first + n * step] == GUARD_BYTE) n++;
    host_done(arena->device, view);
    return n;
}

/* If not, *offset is the overwritten byte, counted from the first byte of the data. */
static bool guards_intact(struct arena *arena, const struct arena_block *block, int64_t *offset)
{
    const int front = guard_intact(arena, block->data - GUARD, GUARD - 1, -1),
        back = guard_intact(arena, block->data + block->bytes, 0, 1);
    *offset = front < GUARD ? -1 - front : (int64_t)block->bytes + back;
    return front == GUARD && back == GUARD;
}

/* A trace has the arena's use at this time as a band for each tag. */
static void arena_note(const struct arena *arena)
{
    const struct clock *c = &arena->device->clock;
    if (c->trace != NULL) trace_arena(c->trace, c->now, &arena->now);
}

static struct arena_lister *lister;             /* of one arena, or NULL */

/* Show the lister every counted block, if this is the moment. */
static void arena_show(const struct arena *arena)
{
    if (lister == NULL || lister->arena != arena || lister->done || arena->now.total != lister->at) return;
    lister->done = true;
    for (int i = 0; i < ARENA_LISTS; i++)
        for (const struct arena_block *b = arena->held[i]; b != NULL; b = b->next)
            if (!b->uncounted) lister->piece(lister->context,
                &(struct arena_piece){ b->tag, b->bytes, b->doing, b->tensor });
}

/* Nobody asks for names unless an arena is to be listed: the usual step does not look for the block. */
void arena_name(struct arena *arena, const void *data, const char *name)
{
    struct arena_block **at = lister && data ? held_at(arena, data) : NULL;
    if (at) (*at)->tensor = name;
}

void arena_list(struct arena_lister *who)
{
    lister = who;
    if (who) arena_show(who->arena);
}

/* Count a new block, and remember the state at the highest total. */
static void arena_count(struct arena *arena, enum arena_tag tag, uint64_t bytes)
{
    arena->now.tag[tag] += bytes;
    arena->now.total += bytes;
    arena->blocks[tag]++;
    if (arena->now.tag[tag] > arena->peak.tag[tag]) arena->peak.tag[tag] = arena->now.tag[tag];
    /* The report of the peak names what was done then. */
    if (arena->now.total > arena->peak.total) {
        arena->peak.total = arena->now.total;
        arena->at_peak = arena->now;
        arena->doing_at_peak = arena->doing;
        memcpy(arena->blocks_at_peak, arena->blocks, sizeof arena->blocks);
    }
    arena_show(arena);
    arena_note(arena);
}

/* A block comes from the spare ones of exactly its size, or is new.  A block counts as the bytes asked for. */
static void *alloc(struct arena *arena, enum arena_tag tag, uint64_t bytes, bool on_host)
{
    struct arena_block *b = take_spare(arena, bytes, on_host);
    if (b == NULL) b = take_new(arena, bytes, on_host);
    if (b == NULL) return NULL;

    struct arena_block **list = &arena->held[list_of((uint64_t)(uintptr_t)b->data)];
    /* A spare block begins a new life: all fields but its memory. */
    *b = (struct arena_block){ .next = *list, .data = b->data, .bytes = bytes, .tag = tag,
                                .doing = arena->doing, .on_host = on_host };
    *list = b;
    if (on_host) memset(b->data, 0, (size_t)bytes);     /* as its other memory shows zeros, also in a run given up */
    arena_count(arena, tag, bytes);
    if (arena->poison) {
        write_guard(arena, b->data - GUARD), write_guard(arena, b->data + bytes);
        arena_poison(arena, b->data, bytes);
    }
    return b->data;
}

void *arena_alloc(struct arena *arena, enum arena_tag tag, uint64_t bytes) { return alloc(arena, tag, bytes, false); }

void *arena_alloc_list(struct arena *arena, enum arena_tag tag, uint64_t bytes)
{
    return alloc(arena, tag, bytes, !arena->device->backend->has_numbers);
}

/* The order matters: messages and flight are told while the content is still there; then guards are checked. */
void arena_free(struct arena *arena, void *data)
{
    if (data == NULL) return;
    struct arena_block **at = held_at(arena, data), *b = *at;
    int64_t offset;

    /* A message may still use the block: then its memory stays. */
    const bool stays = device_used(arena->device, MEMORY_FREED, data, b->bytes, NULL);
    flight_freed(arena->flight, data, b->bytes);
    if (arena->poison && !guards_intact(arena, b, &offset)) {
        fprintf(stderr, "arena: something wrote at byte %lld of a block of %llu bytes (%s)\n",
                (long long)offset, (unsigned long long)b->bytes, arena_tag_name(b->tag));
        abort();
    }
    if (arena->poison) arena_poison(arena, data, b->bytes);
    arena_hand_over(arena, data);
    if (stays) return;                          /* until arena_close */
    *at = b->next;
    keep_or_free(arena, b);
}

const void *arena_look(const struct arena *arena, const void *p, enum arena_tag *tag, uint64_t *bytes)
{
    for (int i = 0; i < ARENA_LISTS; i++)
        for (const struct arena_block *b = arena->held[i]; b != NULL; b = b->next) {
            const unsigned char *at = p;
            if (at < b->data || at >= b->data + b->bytes) continue;
            *tag = b->tag, *bytes = b->bytes;
            return b->data;
        }
    return NULL;
}

/* The network has the block's memory now; arena_free still ends its life. */
void arena_hand_over(struct arena *arena, void *data)
{
    struct arena_block *b = *held_at(arena, data);
    if (b->uncounted) return;
    b->uncounted = true;
    arena->now.tag[b->tag] -= b->bytes;
    arena->now.total -= b->bytes;
    arena->blocks[b->tag]--;
    arena_note(arena);
}

/* The budget is compared with the peak, because a short excess counts, too. */
bool arena_over(const struct arena *arena)
{
    return arena->budget != 0 && arena->peak.total > arena->budget;
}

void arena_reset_peak(struct arena *arena)
{
    arena->peak = arena->at_peak = arena->now;
    arena->doing_at_peak = arena->doing;
    memcpy(arena->blocks_at_peak, arena->blocks, sizeof arena->blocks);
}
