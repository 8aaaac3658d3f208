/* memory_of.h -- the memory of a planned device as a framework's program would have it.
 *
 * run/plan.c calls memory_of for each device that ran.  The emulated device's own count (arena.h) stays as it is.
 */
#ifndef ORRERY_MEMORY_OF_H
#define ORRERY_MEMORY_OF_H

#include "emulated_devices/device/arena.h"
#include "emulated_devices/train/memory_of/profile.h"

struct plan;
struct trainer;

#define MEMORY_KINDS(X)                         \
    X(OF_WEIGHTS,       "weights")              \
    X(OF_GATHERED,      "gathered weights")     \
    X(OF_GRADIENTS,     "gradients")            \
    X(OF_OPTIMIZER,     "optimizer")            \
    X(OF_ACTIVATIONS,   "activations")          \
    X(OF_LOSS,          "logits and loss")      \
    X(OF_WORK,          "temporaries")    \
    X(OF_MESSAGES,      "buffers of messages")

enum memory_kind {
#define X(kind, name) kind,
    MEMORY_KINDS(X)
#undef X
    MEMORY_KIND_COUNT
};

const char *memory_kind_name(enum memory_kind);

/* Bytes of one device. */
struct memory_of {
    uint64_t allocated, reserved;       /* the peaks of the caching allocator */
    uint64_t context, nccl;             /* outside it: of CUDA's context, of NCCL's communicators */
    uint64_t held[MEMORY_KIND_COUNT];   /* when most was allocated */
    struct doing doing;                 /* the pass and part then */
    int64_t segments;                   /* requests that the replay made, of all steps */
};

static inline uint64_t memory_of_total(const struct memory_of *memory)
{
    return memory->reserved + memory->context + memory->nccl;
}

/** Check that a profile can say a plan.  Pure.
 *  @return OK; ERR_PLAN naming what such programs have not: numbers of other than 16 bits, an offload, and the like. */
enum error_code memory_profile_check(const struct memory_profile *, const struct plan *, struct error *);

/**
 * Replay three steps of a device through the caching allocator: the first creates the optimizer's states, the later
 * ones find the free blocks that it left.  Local; sends nothing.
 * @param trainer  open, after a step of a plan, so that the routings of a mixture are known.
 * @return OK or ERR_MEMORY.
 */
enum error_code memory_of(const struct trainer *trainer, const struct memory_profile *, struct memory_of *,
                          struct error *);

#endif
