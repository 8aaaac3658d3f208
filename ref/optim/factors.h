/* factors.h -- what the steps of adamw, sgd and momentum multiply by, with all conventions in them (conventions.h).
 *
 * adamw.c, sgd.c, the CUDA backend and check/recompute/ compute with these factors.  No function returns an error
 * code.
 */
#ifndef ORRERY_FACTORS_H
#define ORRERY_FACTORS_H

#include "ref/optim/optimizer.h"

/* m = beta1 m + new1 g, v = beta2 v + new2 g g, w = after (before w - rate m / (sqrt(v) root + eps)). */
struct adam_factors {
    double beta1, beta2, new1, new2, rate, root, eps, before, after;    /* factors of the formula above, with the step
                                         * number and the conventions already in them */
    double c1, c2;                      /* the corrections, which are in rate, root and eps */
};

/** Factors of adamw's step; in double, or fp32 numbers, as the convention is. */
struct adam_factors adam_factors(struct step);

/* g' = g + coupled w, w = keep w - lr g', or - lr b. */
struct sgd_factors { double coupled, keep; };

/** Factors of a step of sgd or momentum. */
struct sgd_factors sgd_factors(struct step);

#endif
