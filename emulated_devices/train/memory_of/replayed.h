/* replayed.h -- tensors of a replay, counted by their users.  Private to train/memory_of/; no function returns an error
 * code: without memory for a list `failed` is set, and memory_of reports it. */
#ifndef ORRERY_MEMORY_REPLAYED_H
#define ORRERY_MEMORY_REPLAYED_H

#include "emulated_devices/device/caching_allocator.h"
#include "emulated_devices/train/memory_of/memory_of.h"

/* A tensor; freed when its last user drops it. */
struct replayed {
    struct caching_block *block;        /* NULL: it has no bytes */
    uint64_t bytes;                     /* of the tensor */
    enum memory_kind kind;              /* for the list of what is held */
    int users;                          /* readers that still come */
    struct replayed *next;                 /* in a list, or NULL */
};

/* The allocator with what is held, and the state at its peak. */
struct pieces {
    struct caching_allocator allocator; /* the allocator that the step runs through */
    uint64_t held[MEMORY_KIND_COUNT];   /**< Bytes held now, by kind. */
    struct doing doing;                 /* now */
    struct memory_of *result;           /**< Place for the state at the peak. */
    bool failed;
};

/* The streams on which memory is allocated: freed blocks of one serve no other. */
enum { ON_COMPUTE, ON_MESSAGES };

struct replayed *replayed_make(struct pieces *, enum memory_kind, int stream, uint64_t bytes);
struct replayed *replayed_use(struct replayed *);                        /* one more user; NULL stays NULL */
void replayed_drop(struct pieces *, struct replayed **);              /* and set the pointer to NULL */
void replayed_push(struct replayed **list, struct replayed *);           /* a list owns its pieces */
void replayed_drop_all(struct pieces *, struct replayed **list);

#endif
