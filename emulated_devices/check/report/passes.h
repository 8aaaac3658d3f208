/* passes.h -- judges the gradients and losses of later steps by passes from ACTUAL's own weights.
 *
 * Serial.  The golden file's numbers of step 2 and later follow from its weights after step 1.  Another program's
 * weights are off by what rounding did to all passes before, in 16 bits soon by more than can be judged.  So our model
 * runs each pass again, from the weights that ACTUAL had before the step, and ACTUAL's gradients are held to what
 * rounding does in one pass.
 * emulated_devices/cli/check_judged.c calls passes_judge after the operations are recomputed.
 */
#ifndef ORRERY_PASSES_H
#define ORRERY_PASSES_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

/**
 * Judge again, in place, each gradient and loss of a later step that differs from the golden file or that this
 * comparison cannot judge.  Left as they are: steps before which ACTUAL's weights are not complete, and tensors that
 * are right by themselves.
 *
 * A mixture's tokens near a tie may go to either expert.  The choices that explain ACTUAL's gradients best are taken;
 * gradients that they do not explain are wrong only if no run with disturbed choices is as far away.
 * @param rounding  the parts of sums are those of the bounds.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY: the result is as before, or partly judged again.
 */
enum error_code passes_judge(const struct golden *, const struct actual *, enum dtype format, struct rounding rounding,
                             const struct singles *, struct check_result *, struct error *);

/** Whether more twins do not change a verdict.
 *  @param off, bound  of what a program has, and the furthest of the twins, relative; a bound of 0 before the first. */
bool passes_is_settled(double off, double bound, int twins);

#endif
