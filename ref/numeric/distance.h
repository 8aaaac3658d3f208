/* distance.h -- how far two tensors are from each other. */
#ifndef ORRERY_DISTANCE_H
#define ORRERY_DISTANCE_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>

/**
 * The sum of (a - b)^2 over all elements; of a^2, if b is tensor_none.
 * Formats may differ; the shapes hold as many elements.  NaN if any element is.
 * Rounding: in double, in DISTANCE_LANES interleaved partial sums, so in the same order on every machine.
 */
double squared_distance(struct tensor a, struct tensor b);

/** Whether a is larger than b, where NaN is larger than any number: what the largest of many errors is found with. */
static inline bool exceeds(double a, double b) { return !(a <= b) && b == b; }

#endif
