/* stepping.h -- one result of an optimizer's step: what steps.c recomputes and mistakes_steps.c diagnoses.  Inside
 * ref/single only. */
#ifndef ORRERY_SINGLE_STEPPING_H
#define ORRERY_SINGLE_STEPPING_H

#include "ref/single/mistakes.h"
#include "ref/single/steps.h"

/* Norms of what each of P ranks has of a step's gradients, once they have been asked for, by a cut of
 * mistakes_steps.c. */
enum { STEPPING_CUTS = 2 };
struct own_norms { bool known; double norm[SUSPECT_RANKS]; };

struct stepping {
    struct single *s;
    const struct single_steps *o;
    const struct optimizer *is;
    int64_t k;                          /* step, from 0 */
    struct param_spec param;
    int64_t rows, cols;
    int number;                         /* of the parameter */
    struct own_norms (*own)[SUSPECT_RANKS + 1];         /* [STEPPING_CUTS] of this step, by P */
    double u;                           /* unit roundoff of what computes the step */
    int state;                          /* the result: a state of the optimizer; -1: the weight */
};

/** What there is after step k, from 0, of a parameter: "weight", "exp_avg", ...; after -1 where all steps start. */
struct single_name stepping_after(const struct single_steps *, int64_t k, const char *what, const char *param);
struct single_name stepping_gradient(const struct single_steps *, int64_t k, const char *param);

/** The factor of clipping. */
double stepping_clip(const struct stepping *);

/** Offer the mistakes of a step.  @param about  a struct stepping. */
void suspect_step(struct suspect *, const void *about);

#endif
