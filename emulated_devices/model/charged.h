/* charged.h -- whether devices were charged with all that the model computes: what virtual times are worth.
 *
 * An operation that is not charged takes no time, and a plan that leaves some out is too fast without a word.  The
 * model's own operations, counted from its shape alone (model_step_flops), are the least that all devices together
 * must be charged with; and no device computes more than its rate times its time.  So no report can say that devices
 * do more than 100 % of what they can.  Files of run/report/, run/ and train/dry_run/ call these functions.
 */
#ifndef ORRERY_CHARGED_H
#define ORRERY_CHARGED_H

#include "emulated_devices/plan/plan.h"

/** Floating-point operations of a step, of the model's matrices and attention. */
double plan_step_flops(const struct plan *);

/** Do the same without what a step may leave out: experts that no choice computes.  0: not known before a step. */
double plan_least_flops(const struct plan *);

/** Check one device.  Local.  @return OK, or ERR_INTERNAL: its clock has more operations than fit into its time. */
enum error_code charged_check_device(const struct device *, int rank, struct error *);

/** Check the sum over all devices.  Pure.
 *  @param flops  charged to all devices in `steps` steps.  @return OK, or ERR_INTERNAL with both numbers. */
enum error_code charged_check(const struct plan *, int64_t steps, double flops, struct error *);

#endif
