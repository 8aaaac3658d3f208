/* fit.h -- the constants of a cluster file that fit measured steps of Megatron-LM best.  cli/bench/published.c calls
 * these functions. */
#ifndef ORRERY_CLAIMS_FIT_H
#define ORRERY_CLAIMS_FIT_H

#include "ref/error.h"

enum { FIT_CONSTANTS = 7 };
extern const char *const fit_constant_names[FIT_CONSTANTS];

struct claims_fit {
    char cluster[64];                   /**< on which the steps were measured */
    int steps;                          /**< measured steps */
    double best[FIT_CONSTANTS], in_force[FIT_CONSTANTS];        /**< constants: found, and of the cluster file */
    double after, before;               /**< mean |log(ours/measured)| with these */
};

/**
 * Search for the constants with which claims of step-milliseconds have the least misfit; takes minutes.
 * @param name, folder  as claims_find().
 * @return OK, or the error of the file or of a step.
 */
enum error_code claims_fit(struct claims_fit *, const char *name, const char *folder, struct error *);

#endif
