/* exact.h -- calls of collectives whose right result every member can compute.
 *
 * Inputs are small integers that depend only on (member, index), so that every sum is exact in any order and results
 * can be compared with ==.  Sums only; fp32 and fp64.
 */
#ifndef ORRERY_VERIFY_EXACT_H
#define ORRERY_VERIFY_EXACT_H

#include "emulated_devices/collectives/collective.h"

/* One call of one of P members, without counts for each block. */
struct exact_call { enum operation operation; int P, rank; struct collective args; };

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
