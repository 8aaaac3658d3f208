/* distance.h -- the distance of two tensors. */
#ifndef ORRERY_DISTANCE_H
#define ORRERY_DISTANCE_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>

/**
 * The sum of (a - b)^2 over all elements, or of a^2 if b is tensor_none; NaN if any element is NaN.
 * Formats may differ; the numbers of elements must be equal.
 * Rounding: in double, in DISTANCE_LANES interleaved partial sums: the same order on every machine.
 */
double squared_distance(struct tensor a, struct tensor b);

/** Whether a is larger than b; NaN counts as larger than any number.  For finding the largest of many errors. */
static inline bool exceeds(double a, double b) { return !(a <= b) && b == b; }

#endif
