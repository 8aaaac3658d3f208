/* steps.h -- the steps of an optimizer, and sums over microbatches, each held to its own rounding.
 *
 * Serial.  A step is recomputed from the program's own weights and states before it, its gradients, and its norm; the
 * weights from its own states after it.  So an error in one of them is not one in what follows.
 *
 * Weights and states of 16-bit formats may be fp32 masters, or rounded: if all of a tensor's numbers are some of the
 * format's, they have been rounded, and what a step began with may have been further away by that much.
 *
 * Names of tensors: golden/README.md.
 * report/singles.c calls these functions for each optimizer of the golden file.
 */
#ifndef ORRERY_SINGLE_STEPS_H
#define ORRERY_SINGLE_STEPS_H

#include "ref/optim/optimizer.h"
#include "emulated_devices/check/recompute/single.h"

struct single_steps {
    const char *optimizer;              /* its name is the prefix of its tensors */
    struct hyperparameters hyper;       /**< Numbers of the optimizer. */
    int64_t steps;                      /**< Steps of the program. */
    const double *lr;                   /* [steps] */
    enum dtype format;                  /* of the computation */
    int64_t begins;                     /* steps before the dump begins; their norms are 0 */
};

/** Recompute the norms of all steps that the program has.  @return as single_check. */
enum error_code single_check_norms(const struct model_config *, const struct single_steps *, struct rounding,
                                   struct single_source, struct error *);

/** Recompute the weights and states of step k, from 0, that the program has.  @return as single_check. */
enum error_code single_check_step(const struct model_config *, const struct single_steps *, int64_t k,
                                  struct rounding, struct single_source, struct error *);

/** Add up the losses and gradients of the first step's microbatches, where the program has them.
 *  @return as single_check. */
enum error_code single_check_micros(const struct model_config *, int64_t micros, struct single_batch,
                                    struct rounding, struct single_source, struct error *);

#endif
