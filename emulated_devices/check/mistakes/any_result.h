/* any_result.h -- hypotheses about results of any operation, which mistakes.c tries in its order.
 * y has room for the result.  Inside check/mistakes/ only.
 */
#ifndef ORRERY_MISTAKES_ANY_RESULT_H
#define ORRERY_MISTAKES_ANY_RESULT_H

#include "emulated_devices/check/mistakes/mistakes.h"

/* ---- any_result.c ------------------------------------------------------------------------------------------------ */

/* A result of zeros is explained by exactly this; a tolerance would let small results pass. */
void suspect_zeros(struct suspect *, double *y);

/* Rows, columns or a rank's piece that are zero, beside what is right. */
void suspect_zeros_there(struct suspect *, double *y);

/* All of the result has one factor: a lost mean, a loss scale, a sum over ranks. */
void suspect_factor(struct suspect *, double *y);

/* The wrong elements alone have one factor.  Nothing else may have been found, since any small error has a best
 * factor. */
void suspect_factor_there(struct suspect *, double *y);

/* Each sequence has a factor of its own: parts of a batch, as copies or microbatches have them. */
void suspect_sequences(struct suspect *, double *y);

/* A summand is lost, halved or doubled: c is the factor that fits best.  c = -1 means that the summand is missing. */
void suspect_summand(struct suspect *, const struct single_term *, double *y);

/* Whether the words of a suspect are those of suspect_factor. */
bool suspect_is_scaled(const struct suspect *);

/* ---- roundings.c ------------------------------------------------------------------------------------------------- */

/* The result itself was rounded to a narrower format than the program claims.  It must have that format's bits
 * only, and its errors must be those of a rounding. */
void suspect_rounded(struct suspect *, double *y);

/* Recompute with sums, or the inputs of sums, in a narrower format.  The errors do not show which of both was
 * narrow: they grow with the number of roundings, too. */
void suspect_narrow_sums(struct suspect *, double *y);

#endif
