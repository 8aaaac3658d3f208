/* choices.h -- which choices of experts explain the gradients of another program's pass.
 *
 * Serial.  In 16 bits a token whose logits are nearly equal may go to either expert, and most dumps have no logits of
 * later passes.  report/passes.c asks before it judges a pass.
 */
#ifndef ORRERY_CHOICES_H
#define ORRERY_CHOICES_H

#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/recompute/single.h"

/** The disturbance of a twin of a program whose sums have so many stored parts. */
struct perturbation choices_twin(enum dtype, const struct rounding *);

/**
 * Take the choices that ACTUAL's own router logits of the pass make, if it has those of all layers.
 * @param prefix  of ACTUAL's names: "" of the first pass, "adamw/2/" of the second.
 * @return OK, also if they are not there: then the pass keeps its own; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code choices_read(struct own_pass *, const struct golden *, const struct actual *, const char *prefix,
                             struct error *);

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
