/* sums.h -- five sums over a tensor and its truth, from which error and factor follow.
 *
 * Serial.  Every comparison adds up here: activations (probes.h), weights, gradients and states (compare.h), golden
 * files (checker.h).
 */
#ifndef ORRERY_SUMS_H
#define ORRERY_SUMS_H

#include "emulated_devices/verify/diagnose.h"
#include "ref/numeric/tensor.h"

/* What one device's part of one tensor is, beside the truth. */
struct sums {
    double difference, actual, product, truth;  /* sums over its elements of (a-t)^2, a^2, a t, t^2 */
    int64_t elements;                           /* compared */
    int64_t expected;                           /* that there should have been */
};

/** Add `length` elements: from `a` on of the one tensor, from `t` on of the other.
 * In double, whatever their formats. */
void sums_add(struct sums *, struct tensor actual, int64_t a, struct tensor truth, int64_t t, int64_t length);

/** Norm of the difference over `size`, the norm of the whole truth.  0 if nothing differs, even where that is 0; NaN if
 *  an element was one, or if not as many were compared as there should have been. */
double sums_error(const struct sums *, double size);

/** The numbers as a multiple of the true ones. */
struct scale sums_scale(const struct sums *);

#endif
