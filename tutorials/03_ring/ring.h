/* ring.h -- lesson 03: what ring.c defines.  README.md explains it.
 *
 * All devices of a group of W call a function together, with the same n.
 * Block i of x is block_of(n, W, i) of course.h; block numbers are modulo W.
 * Devices send only to the {RING: right|left} neighbour, r {RING: + 1|- 1} modulo W for device r, and
 * receive only from the other one.
 * W >= 1, n >= 0: blocks may be empty, and are sent all the same.  x need not
 * be aligned to more than a float.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef RING_H
#define RING_H

#include "course.h"

/** Afterwards block {OWNER: r|r + 1} of x on device r is the sum of that block
 *  on all devices; the other blocks may be anything.  A block is added on its
 *  way round the ring: to what arrives a device adds its own numbers.  W-1
 *  messages of one block; allocates at most one block, ceil(n/W) numbers. */
void ring_reduce_scatter(const struct group *, float *x, int64_t n);

/** At first block {OWNER: r|r + 1} of x on device r is right; afterwards all
 *  blocks are, on all devices.  W-1 messages of one block; allocates
 *  nothing. */
void ring_all_gather(const struct group *, float *x, int64_t n);

/** Afterwards x is the sum of x on all devices, with the same bits on all of
 *  them: one after the other of the above. */
void ring_all_reduce(const struct group *, float *x, int64_t n);

#endif
