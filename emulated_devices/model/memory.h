/* memory.h -- allocation within a step. */
#ifndef ORRERY_STEP_MEMORY_H
#define ORRERY_STEP_MEMORY_H

#include "emulated_devices/device/device.h"

/* Many allocations, one answer: a failure is remembered and reported at the end of the pass. */
struct allocator { struct device *device; enum arena_tag tag; bool failed; };

/* What is kept between forward and backward: elements in the device's format, and statistics in theirs. */
struct kept { int64_t elements, statistics; };

static inline uint64_t kept_bytes(const struct device *d, struct kept k)
{
    return (uint64_t)k.elements * dtype_size(d->dtype) + (uint64_t)k.statistics * dtype_size(dtype_wide(d->dtype));
}

struct tensor allocate_matrix(struct allocator *, int64_t rows, int64_t cols);
struct tensor allocate_statistics(struct allocator *, int64_t rows, int64_t cols);      /* cols 0: a vector */

/** Give tensors back, and forget them. */
void drop_tensors(struct device *, struct tensor *const all[], size_t count);
static inline void drop_tensor(struct device *d, struct tensor *t) { drop_tensors(d, &t, 1); }

/** The tensor, which is then somebody else's. */
static inline struct tensor take_tensor(struct tensor *t)
{
    const struct tensor taken = *t;
    *t = tensor_none;
    return taken;
}

#endif
