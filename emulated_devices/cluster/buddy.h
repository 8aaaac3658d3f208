/* buddy.h -- which blocks of a cluster's devices are free: blocks of powers of two, each at a multiple of its size.
 *
 * A block is one half of a block of twice its size, its buddy is the other half.  So a job in a block has as few nodes
 * as its devices allow, and free halves are one free block again without being joined.  If devices that are free
 * together are enough, jobs can always be moved so that they are one block.
 *
 * Source  K. C. Knowlton, "A fast storage allocator", 1965, doi:10.1145/365628.365655; D. Gu et al., "Energy-efficient
 *         GPU clusters scheduling for deep learning" (PowerFlow), arXiv:2304.06381, which allocates so
 *
 * place.c and backfill.c call these functions.  Only buddy_open can fail.
 */
#ifndef ORRERY_CLUSTER_BUDDY_H
#define ORRERY_CLUSTER_BUDDY_H

#include "ref/error.h"
#include <stdbool.h>

struct buddy {
    int devices;                        /* a power of two */
    int free;                           /* devices that no block has taken */
    int *largest;                       /* [2 devices] of each node of the tree, 1 the root: the largest free block */
};

/** All devices are free.  @return OK or ERR_MEMORY. */
enum error_code buddy_open(struct buddy *, int devices, struct error *);
void buddy_close(struct buddy *);

/** Take the free devices of another one of the same size. */
void buddy_copy(struct buddy *, const struct buddy *from);

/** Take a block where the smallest free block has room, of these the first.  @return its first device; -1: none. */
int buddy_take(struct buddy *, int size);

/** Take a block that does not meet another one.  @return as buddy_take. */
int buddy_take_beside(struct buddy *, int size, int place, int other);

/** Take this block.  @return whether it was free. */
bool buddy_take_at(struct buddy *, int size, int place);

/** Give a block back that was taken. */
void buddy_give(struct buddy *, int size, int place);

/** Whether a block is free as a whole. */
bool buddy_is_free(const struct buddy *, int size, int place);

#endif
