/* stepping.h -- one result of an optimizer's step: what steps.c recomputes and mistakes/steps.c diagnoses.  Inside
 * check/ only.
 * clipping.c uses it, too. */
#ifndef ORRERY_SINGLE_STEPPING_H
#define ORRERY_SINGLE_STEPPING_H

#include "emulated_devices/check/recompute/kept.h"
#include "emulated_devices/check/recompute/parts.h"
#include "emulated_devices/check/recompute/steps.h"

struct stepping {
    struct single *s;                   /**< State of the check of single operations. */
    const struct single_steps *o;       /**< Optimizer's settings and steps of the program. */
    const struct optimizer *is;         /**< Optimizer that steps. */
    int64_t k;                          /* step, from 0 */
    struct param_spec param;            /**< Parameter that is stepped. */
    int64_t rows, cols;                 /* that are now computed */
    int64_t first, whole;               /* the first of these rows; rows of the parameter */
    int number;                         /* of the parameter */
    double u, tiny;                     /* unit roundoff of what computes the step, and half its smallest step */
    int state;                          /* the result: a state of the optimizer; -1: the weight */
    struct kept kept;                   /* what is known of it so far */
};

/** The name of what there is after step k, from 0, of a parameter: "weight", "exp_avg", ...; after -1 where all steps
 * start. */
struct single_name stepping_after(const struct single_steps *, int64_t k, const char *what, const char *param);
struct single_name stepping_gradient(const struct single_steps *, int64_t k, const char *param);

/** Compute the factor of clipping. */
double stepping_clip(const struct stepping *);

#endif
