/* stepping.h -- one result of an optimizer's step: what steps.c recomputes and mistakes_steps.c diagnoses.  Inside
 * ref/single only. */
#ifndef ORRERY_SINGLE_STEPPING_H
#define ORRERY_SINGLE_STEPPING_H

#include "ref/single/kept.h"
#include "ref/single/mistakes.h"
#include "ref/single/steps.h"

/* The sums that diagnoses of a step share, once one has asked for them: for all parameters. */
struct stepping_norms {
    bool known, has;                    /* has: no gradient is missing */
    double own[SHARE_CUTS][SUSPECT_RANKS + 1][SUSPECT_RANKS];   /* of what each of P ranks has, by cut and P */
    bool copies_known;
    struct suspect_copies copies;
};

struct stepping {
    struct single *s;
    const struct single_steps *o;
    const struct optimizer *is;
    int64_t k;                          /* step, from 0 */
    struct param_spec param;
    int64_t rows, cols;                 /* that are now computed */
    int64_t first, whole;               /* the first of these rows; rows of the parameter */
    int number;                         /* of the parameter */
    struct share **shares;              /* [SHARE_CUTS] of all steps; NULL: nobody has asked for a cut */
    struct stepping_norms *norms;       /* of this step */
    double u, tiny;                     /* unit roundoff of what computes the step, and half its smallest step */
    int state;                          /* the result: a state of the optimizer; -1: the weight */
    struct kept kept;                   /* what is known of it so far */
};

/** What there is after step k, from 0, of a parameter: "weight", "exp_avg", ...; after -1 where all steps start. */
struct single_name stepping_after(const struct single_steps *, int64_t k, const char *what, const char *param);
struct single_name stepping_gradient(const struct single_steps *, int64_t k, const char *param);

/** The factor of clipping. */
double stepping_clip(const struct stepping *);

/* What is made of a clipped gradient: a state, or sgd's weight, is `rest` and `times` the gradient, or its square. */
struct clipping {
    const double *rest, *g;             /* g: not clipped */
    double clip, times;                 /* clip: the right factor */
    bool squared;
};

/** Offer gradients that are clipped by other norms. */
void suspect_clipping(struct suspect *, const struct stepping *, struct clipping, double *y);

/** Offer the mistakes of a step.  @param about  a struct stepping. */
void suspect_step(struct suspect *, const void *about);

#endif
