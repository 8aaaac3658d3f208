/* arena.h -- the memory of one device: every tensor comes from here, tagged, counted and held to a budget.
 *
 * The budget is a property of the emulated device, not of the machine: going over it is remembered, not refused, so
 * that all devices reach the next point of agreement and the report can say who held what (arena_over).  Bytes counted
 * are the bytes asked for, so that tests can compare them with formulas by ==.
 *
 * The memory is the backend's (backend.h); the arena keeps the books, on the host.
 */
#ifndef ORRERY_ARENA_H
#define ORRERY_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_TAGS(X)                   \
    X(PARAMETERS,  "parameters")        \
    X(GRADIENTS,   "gradients")         \
    X(OPTIMIZER,   "optimizer")         \
    X(ACTIVATIONS, "activations")       \
    X(BUFFERS,     "buffers")

enum arena_tag {
#define X(tag, name) tag,
    ARENA_TAGS(X)
#undef X
    ARENA_TAG_COUNT
};

struct arena_use {
    uint64_t tag[ARENA_TAG_COUNT];      /* bytes */
    uint64_t total;
};

struct device;

enum { ARENA_LISTS = 64 };

struct arena {
    struct device *device;              /* whose backend has the memory */
    uint64_t budget;                    /* bytes; 0: no limit */
    bool poison;                        /* fill new and freed memory with NaN patterns and check guard bands */
    struct arena_use now;
    struct arena_use peak;              /* highest of each tag, and of the total; not all at the same moment */
    struct arena_use at_peak;           /* what was held at the moment of the highest total */
    struct arena_block *held[ARENA_LISTS];      /* everything not freed yet, by address */
    struct flight *flight;              /* is told of what is freed (flight.h); NULL: nobody is */
    struct arena_block *spare[ARENA_LISTS];     /* freed blocks kept for the next one of their size, by size */
    uint64_t spare_bytes;
};

const char *arena_tag_name(enum arena_tag);

/** An arena with nothing in it, of a device that has its backend.  poison is on in debug and sanitizer builds. */
void arena_open(struct arena *, struct device *, uint64_t budget);

/** Free whatever is left. */
void arena_close(struct arena *);

/**
 * Memory for one tensor, aligned to 64 bytes, its content undefined.
 * @param bytes  may be 0: a pointer that may be freed but not used.
 * @return NULL if the backend has no more memory; never because of the budget.
 */
void *arena_alloc(struct arena *, enum arena_tag, uint64_t bytes);

/** Give memory back; NULL is allowed.  Aborts the program if something wrote outside the block (poison builds). */
void arena_free(struct arena *, void *);

/** Whether an address lies in a block that has not been freed, with which tag, and how long the block is. */
bool arena_look(const struct arena *, const void *, enum arena_tag *, uint64_t *bytes);

/** Fill memory, the device's or the host's, with the pattern of what may not be read:
 * NaN as two floats and as one double. */
void arena_poison(const struct arena *, void *, uint64_t bytes);

/** Stop counting a block that has been handed to the network:
 * it still exists, until arena_free, but outside the device. */
void arena_hand_over(struct arena *, void *);

/** Whether the highest total so far is above the budget. */
bool arena_over(const struct arena *);

/** Start new peaks from what is held now. */
void arena_reset_peak(struct arena *);

#endif
