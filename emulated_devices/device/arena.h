/* arena.h -- the memory of one device: every tensor is allocated here, with a tag, counted, and compared with a budget.
 *
 * The budget belongs to the emulated device, not to the machine.  An allocation above it succeeds and is recorded, so
 * that all devices reach the next comm_agree and the report can name the device and its tags (arena_over).  The bytes
 * counted are the bytes asked for, so that tests can compare them with formulas by ==.
 *
 * The memory belongs to the backend (backend.h); the arena's own lists are on the host.  NULL means that the backend
 * has no more memory.  Files of schemes/, collectives/, draw/ and other rooms allocate here.
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
    uint64_t total;                     /* bytes of all tags together */
};

/* The work that a device is doing, for reports.  The texts live as long as the program. */
struct doing {
    const char *pass;                   /* "forward"; NULL: nothing is known */
    const char *part;                   /* of the model: "the embedding", "layer", "the loss"; NULL: none */
    const char *what;                   /* the tensor that is computed; NULL: none */
    int micro, layer;                   /* the microbatch, -1: none; the number of a layer */
};

/** "forward of microbatch 0, layer 1, attn.q"; "before the first pass".  @return text. */
const char *doing_describe(const struct doing *, char *text, size_t size);

struct device;

enum { ARENA_LISTS = 64 };

struct arena {
    struct device *device;              /* whose backend has the memory */
    uint64_t budget;                    /* bytes; 0: no limit */
    bool poison;                        /* fill new and freed memory with NaN patterns and check guard bands */
    struct arena_use now;               /* bytes of the blocks in use */
    struct arena_use peak;              /* the largest of each tag and of the total, at different times */
    struct arena_use at_peak;           /* the use when the total was largest */
    struct doing doing, doing_at_peak;  /* the pass and tensor at work now; the one when the total was largest */
    uint32_t blocks[ARENA_TAG_COUNT], blocks_at_peak[ARENA_TAG_COUNT];  /* counted blocks of each tag */
    struct arena_block *held[ARENA_LISTS];      /* blocks in use, by address */
    struct flight *flight;              /* called for freed blocks (flight.h), or NULL */
    struct arena_block *spare[ARENA_LISTS];     /* freed blocks, kept for reuse, by size */
    uint64_t spare_bytes;               /* bytes of all spare blocks; held and spare ones never exceed the peak */
};

const char *arena_tag_name(enum arena_tag);

/** An empty arena.  The device must have its backend.  `poison` is on in debug and sanitizer builds. */
void arena_open(struct arena *, struct device *, uint64_t budget);

/** Free all blocks in use. */
void arena_close(struct arena *);

/**
 * Memory for one tensor, aligned to 64 bytes, its content undefined.
 * @param bytes  may be 0: a pointer that may be freed but not used.
 * @return NULL if the backend has no more memory; never because of the budget.
 */
void *arena_alloc(struct arena *, enum arena_tag, uint64_t bytes);

/** Allocate integers that the host and other devices read, such as lists of rows: on a backend without numbers they are
 *  in the host's memory, and real.  For arena_free. */
void *arena_alloc_list(struct arena *, enum arena_tag, uint64_t bytes);

/** Free a block; NULL is allowed.  In poison builds, aborts if a guard band was overwritten. */
void arena_free(struct arena *, void *);

/** Find the block with an address that has not been freed; its tag and length.
 *  @return the block's first byte; NULL: it is in none. */
const void *arena_look(const struct arena *, const void *, enum arena_tag *, uint64_t *bytes);

/** Fill device or host memory with a pattern that is NaN as two floats and as one double. */
void arena_poison(const struct arena *, void *, uint64_t bytes);

/** Fill all memory in use with the pattern. */
void arena_poison_all(const struct arena *);

/** Whether memory has that pattern still. */
bool arena_is_poison(const struct arena *, const void *, uint64_t bytes);

/** Stop counting a block that the network owns now.  It exists until arena_free. */
void arena_hand_over(struct arena *, void *);

/** Whether the highest total so far is above the budget. */
bool arena_over(const struct arena *);

/** Start new peaks from what is held now. */
void arena_reset_peak(struct arena *);

#endif
