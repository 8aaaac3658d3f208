/* quantised.h -- the values of whole weights after devices have sent them to each other as codes.
 *
 * Quantising is deterministic: the same numbers in the same blocks give the same codes.  So a one-device run that
 * starts a step with the devices' weights can compute, bit for bit, the weights that the devices gather.  The blocks
 * follow from the plan.
 *
 * Callers are files of this folder: reference.c, reference_bounds.c, reference_quantised.c.
 */
#ifndef ORRERY_VERIFY_QUANTISED_H
#define ORRERY_VERIFY_QUANTISED_H

#include "emulated_devices/plan/plan.h"

/** Whether devices gather quantised weights before use, or after a step.  The plan must have passed plan_check. */
bool quantised_before_use(const struct plan *);
bool quantised_after_step(const struct plan *);

/** Replace whole weights by the gathered values.  Serial.
 *  @param tensor  [parameters of the model], in the plan's format.
 *  @return OK or ERR_MEMORY. */
enum error_code quantise_before_use(const struct plan *, struct tensor *tensor, struct error *);
enum error_code quantise_after_step(const struct plan *, struct tensor *tensor, struct error *);

#endif
