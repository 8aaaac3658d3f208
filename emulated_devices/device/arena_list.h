/* arena_list.h -- what an arena holds at one moment, block by block: when its total is a given number of bytes.
 *
 * run/report/held_tensors.c asks, in a step that is planned a second time, when the peak is known; model/run/run.c
 * names the blocks of tensors.  One arena of the process is listed at a time.  No function returns an error code.
 */
#ifndef ORRERY_ARENA_LIST_H
#define ORRERY_ARENA_LIST_H

#include "emulated_devices/device/arena.h"

/* A counted block, and what the device did when the block was allocated. */
struct arena_piece {
    enum arena_tag tag;                 /* the class of the tensor */
    uint64_t bytes;                     /* of the block */
    struct doing doing;                 /* what the device did when it opened the block */
    const char *tensor;                 /* what the block is for, if arena_name said it; or NULL */
};

/* Who is shown what the arena holds when its total has come to `at` bytes for the first time. */
struct arena_lister {
    const struct arena *arena;          /* the one that is listed */
    uint64_t at;                        /* bytes of its total */
    void (*piece)(void *context, const struct arena_piece *);   /* called for each counted block */
    void *context;                      /* first argument of piece */
    bool done;                          /* the pieces have been shown */
};

/** Show what the arena of a lister holds, once, when its total is lister->at: later, or now.  NULL: nobody is shown
 *  anything from now on. */
void arena_list(struct arena_lister *);

/** Say what the block of an address is for.  @param name  lives as long as the program. */
void arena_name(struct arena *, const void *, const char *name);

#endif
