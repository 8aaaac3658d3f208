/* exact.h -- calls of collectives whose right answer every member knows.
 *
 * Inputs are small integers that depend only on (member, index), so that every sum is exact in any order and results
 * can be compared with ==.  Sums only; fp32 and fp64.
 */
#ifndef ORRERY_VERIFY_EXACT_H
#define ORRERY_VERIFY_EXACT_H

#include "emulated_devices/collectives/collective.h"

/* One call as one of P members sees it, without counts for each block. */
struct exact_call { enum operation operation; int P, rank; struct collective args; };

/** Elements that this member passes in, and gets. */
int64_t exact_in_length(const struct exact_call *);
int64_t exact_out_length(const struct exact_call *);

/** What element i of this member's input is, and of its output must be. */
double exact_in(const struct exact_call *, int64_t i);
double exact_out(const struct exact_call *, int64_t i);

/** Element i of an array of fp32 or fp64. */
void exact_put(enum dtype, void *array, int64_t i, double x);
double exact_get(enum dtype, const void *array, int64_t i);

#endif
