/* exact.h -- calls of collectives whose right result every member can compute.
 *
 * Inputs are small integers that depend only on (member, index), so that every sum is exact in any order and results
 * can be compared with ==.  Sums and averages only; fp32 and fp64.  bench/schemes/collectives_device.c and
 * collectives.c call these functions.  No function returns an error code.
 */
#ifndef ORRERY_VERIFY_EXACT_H
#define ORRERY_VERIFY_EXACT_H

#include "emulated_devices/collectives/collective.h"

/* One call of one of P members.  uneven: an all-to-all whose blocks differ in length (exact_between); its counts are
 * the caller's to fill in.  Blocks of other operations are nearly equal. */
struct exact_call { enum operation operation; int P, rank; struct collective args; bool uneven; };

/** Elements that an all-to-all moves from one member to another: args.count, or if uneven more, fewer or none of it. */
int64_t exact_between(const struct exact_call *, int from, int to);

/** The numbers of elements of this member's input and output. */
int64_t exact_in_length(const struct exact_call *);
int64_t exact_out_length(const struct exact_call *);

/** Element i of this member's input; the right value of element i of its output. */
double exact_in(const struct exact_call *, int64_t i);
double exact_out(const struct exact_call *, int64_t i);

/** Write or read element i of an array of fp32 or fp64. */
void exact_put(enum dtype, void *array, int64_t i, double x);
double exact_get(enum dtype, const void *array, int64_t i);

#endif
