/* choices.h -- which choices of experts explain the gradients of another program's pass.
 *
 * Serial.  In 16 bits a token whose logits are nearly equal may go to either expert, and no dump has the logits of later
 * passes.  report/passes.c asks before it judges a pass.
 */
#ifndef ORRERY_CHOICES_H
#define ORRERY_CHOICES_H

#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/recompute/single.h"

/** The disturbance of a twin of a program whose sums have so many stored parts. */
struct perturbation choices_twin(enum dtype, const struct rounding *);

/**
 * Find which tokens may choose otherwise, in runs with disturbed roundings, and take the choices that explain ACTUAL's
 * gradients best: one token after the other, as long as the gradients come nearer.
 * @param pass  it was run; it is run again with what was found.  `spread` is how far runs with disturbed choices are
 *              away from it; 0 where no token may choose otherwise, as in a model without experts.
 * @return as replay_pass_run.
 */
enum error_code choices_explain(struct own_pass *pass, const struct golden *, enum dtype, const struct rounding *,
                                struct error *);

#endif
