/* fixed_sum.c -- elements of EXACT tensors as doubles.  tensor_get and tensor_set call this file, which cannot fail. */
#include "ref/numeric/fixed_sum.h"

double fixed_get(const void *sums, int64_t i) { return fixed_to_double(fixed_at(sums, i)); }

void fixed_set(void *sums, int64_t i, double x) { fixed_put(sums, i, fixed_of(x)); }
