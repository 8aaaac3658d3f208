/* quantised.h -- what whole weights become when devices send them to each other as codes.
 *
 * Quantising has no freedom: the same numbers in the same blocks make the same codes.  So the one-device run that
 * begins a step with the devices' weights can use, bit for bit, those that the devices gather; blocks are found from
 * the plan.
 */
#ifndef ORRERY_VERIFY_QUANTISED_H
#define ORRERY_VERIFY_QUANTISED_H

#include "emulated_devices/plan/plan.h"

/** Whether devices gather quantised weights before use / after a step, of a plan that has passed plan_check. */
bool quantised_before_use(const struct plan *);
bool quantised_after_step(const struct plan *);

/** Make whole weights what is then gathered.  Serial.  @param w  [parameters of the model], in the plan's format.
 * @return OK or ERR_MEMORY. */
enum error_code quantise_before_use(const struct plan *, struct tensor *w, struct error *);
enum error_code quantise_after_step(const struct plan *, struct tensor *w, struct error *);

#endif
