/* sums.h -- sums over a tensor and its truth, from which error and factor are computed.
 *
 * Serial.  All comparisons use them: of activations (probes.h), of weights, gradients and states (compare.h), with
 * golden files (checker.h).
 */
#ifndef ORRERY_SUMS_H
#define ORRERY_SUMS_H

#include "emulated_devices/check/report/diagnose.h"
#include "ref/numeric/tensor.h"

/* The first element that differs.  A unit of the grid is 2^unit: the last place of the truth in its format, or of sums
 * that do not round their unit. */
struct apart_element {
    bool there;                                 /**< Some element differs. */
    int64_t row, column;                        /* of the truth that the sums were told: a whole tensor, or a part */
    double actual, truth, units;                /* units: actual - truth, in units of the grid */
    int unit;                                   /**< Exponent of the unit of the grid. */
};

/* These are the sums of one device's part of one tensor. */
struct sums {
    double difference, actual, product, truth;  /* sums over its elements of (a-t)^2, a^2, a t, t^2 */
    int64_t elements;                           /* number of elements compared */
    int64_t expected;                           /* number of elements that should be compared */
    int64_t unrounded;                          /* how many of them are sums before they were rounded */
    struct apart_element first;
};

/** The exponent of the last place of x in a format: neighbours of x are 2^that apart.  Of EXACT the unit of a sum. */
int sums_last_place(enum dtype, double x);

/** Add `length` elements, from index a of the one tensor and from index t of the other.  In double for all formats. */
void sums_add(struct sums *, struct tensor actual, int64_t a, struct tensor truth, int64_t t, int64_t length);

/** Compute the norm of the difference over `size`, the norm of the whole truth.  0 if nothing differs, even if size
 * is 0; NaN if an element was NaN, or if the number of elements compared is wrong. */
double sums_error(const struct sums *, double size);

/** The numbers as a multiple of the truth. */
struct scale sums_scale(const struct sums *);

#endif
