/* messages.h -- lesson 02: what messages.c defines.  README.md explains it.
 *
 * All devices of a group of W call a function together, with the same n and k.
 * A function returns when its device has its result.  Every function works for
 * any W >= 1 and n >= 1, and also if every message waits for its receiver.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include "course.h"

/** Round the ring: numbers travel k devices to the right.  `out` of device r
 *  becomes `in` of device r - k, counted modulo W; k may be negative, or
 *  larger than W.  One message a device, and none if a device gets its own
 *  numbers.  @param in,out n numbers each; two arrays. */
void shift(const struct group *, const float *in, float *out, int64_t n, int k);

/** Devices 0 and 1, 2 and 3, .. exchange their n numbers, in place.  The last
 *  device of an odd number keeps its own.  One message a device, and no more
 *  than n numbers of allocated memory. */
void swap_pairs(const struct group *, float *x, int64_t n);

/** Sums along a line: x of device r becomes the sum of x of the devices
 *  {LINE: 0 .. r|r .. W-1}, element by element, added one after another
 *  beginning with device {LINE: 0|W-1}.  One message a device to the next one
 *  of the line; the last one sends none. */
void running_sum(const struct group *, float *x, int64_t n);

#endif
