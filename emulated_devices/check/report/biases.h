/* biases.h -- judges the corrections of routers after each step, which balance the experts without a loss.
 *
 * Serial.  A correction moves by how often its expert was chosen in the whole batch.  So it follows from the choices of
 * a pass, which our model makes again from ACTUAL's own weights and logits (recompute/own_pass.h).
 * passes.c calls biases_judge after each pass.
 */
#ifndef ORRERY_BIASES_H
#define ORRERY_BIASES_H

#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/report/checker.h"

/**
 * Judge, in place, each correction that ACTUAL has after a step, and say which mistake explains a wrong one.
 * @param step          from 0, of a pass that was run.
 * @param[in,out] bias  [L, columns of a router] before the step; then after it: ACTUAL's, where it has them, else ours.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code biases_judge(const struct golden *, const struct actual *, const char *optimizer, int64_t step,
                             struct own_pass *, enum dtype format, struct check_result *, double *bias, struct error *);

#endif
