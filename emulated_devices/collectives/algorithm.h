/* algorithm.h -- what the files of this folder share.  Private to it; users include collective.h. */
#ifndef ORRERY_ALGORITHM_H
#define ORRERY_ALGORITHM_H

#include "emulated_devices/collectives/collective.h"

/* ---- elements and bytes ------------------------------------------------------------------------------------------ */

static inline uint64_t bytes_of(const struct collective *c, int64_t elements)
{
    return (uint64_t)elements * dtype_size(c->dtype);
}

/* Element i of an array in the collective's format. */
static inline void *element(const struct collective *c, void *array, int64_t i)
{
    return (char *)array + bytes_of(c, i);
}

static inline const void *const_element(const struct collective *c, const void *array, int64_t i)
{
    return (const char *)array + bytes_of(c, i);
}

/* dst = src, if they are not the same; charged to the device's memory. */
void copy_elements(struct exchange *, const struct collective *, void *dst, const void *src, int64_t elements);

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

static inline int imod(int i, int P) { return (i % P + P) % P; }

/* Where block b (taken mod P) begins and how long it is: counts[] if given, else count cut into nearly equal parts.
 * For the operations whose table in collective.h says "count means blocks". */
int64_t block_first(const struct collective *, int P, int b);
int64_t block_length(const struct collective *, int P, int b);
int64_t block_longest(const struct collective *, int P);
/* Elements of all blocks: count, or the sum of counts. */
int64_t block_total(const struct collective *, int P);

/* Length of block b when the vector of an operation without counts (broadcast, allreduce) is cut into P. */
static inline int64_t part_length(int64_t count, int P, int b)
{
    b = imod(b, P);
    return block_start(count, P, b + 1) - block_start(count, P, b);
}

/* ---- scratch ------------------------------------------------------------------------------------------------------- */

/**
 * Scratch for an algorithm on every member, or ERR_MEMORY on every member.
 * Collective over the group: all members ask, each for as many elements as it needs (also for none).
 */
enum error_code scratch_agreed(struct exchange *, const struct collective *, int64_t elements, void **scratch, struct error *);

#endif
