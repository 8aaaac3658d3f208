/* distance.h -- measures the distance of two tensors: the sum of the squares of their differences.
 *
 * Golden files, verify/reference/ and check/report/ compare tensors with these functions.  No function returns an
 * error code.
 */
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

/**
 * The same for a / divisor and b, faster: fixed parts are summed on all cores, each in partial sums as above, and added
 * in order, so the order of addition is the same on every machine.
 * Rounding: a quotient by anything but 1 is rounded to the wide format of a (dtype_wide).
 */
double squared_distance_of_quotient(struct tensor a, double divisor, struct tensor b);

/**
 * The distance of two tensors over the norm, once both are stored.  However close two numbers are, a rounding boundary
 * can lie between them, and then they are stored 2 u apart; or, in fp16 below 2^-14, one step of the format, 2^-24.
 * @param far    their distance before that.
 * @param size   the norm of the tensor that both stand for; count: its elements.
 * @param dtype  the format in which both are stored.
 */
double relative_when_stored(double far, double size, int64_t count, enum dtype dtype);

/** Do the same where `size` may be 0, as of a gradient that cancels: there the distance itself, and 0 if both are
 * zero. */
double relative_or_absolute(double far, double size, int64_t count, enum dtype dtype);

/** Whether a is larger than b; NaN counts as larger than any number.  For finding the largest of many errors. */
static inline bool exceeds(double a, double b) { return !(a <= b) && b == b; }

#endif
