/* mixture.h -- a mixture of experts on many devices: what its routers add to the loss.
 *
 * The balance loss is E sum_e f_e p_e, with f_e the share of choices of expert e and p_e its mean probability, both
 * over all tokens of the batch in all layers together (transformers' Mixtral; ref/model/mixture.c).  So no layer knows
 * the slope of its probabilities before the last forward pass of the whole batch.  One small all-reduce then tells all
 * devices the sums; backward passes come after it.
 */
#ifndef ORRERY_MIXTURE_H
#define ORRERY_MIXTURE_H

#include "emulated_devices/model/trainer.h"

/** Room for the sums of a step.  Local.  @return OK or ERR_MEMORY. */
enum error_code routers_open(struct trainer *, struct error *);
void routers_close(struct trainer *);

/** Before a step: nothing has been routed. */
void routers_begin(struct trainer *);

/** After all forward passes, of a model with a balance loss: the sums of all devices, and the slopes.  Collective over
 *  all devices.
 *  @return OK or ERR_COMM. */
enum error_code routers_share(struct trainer *, struct error *);

/** After the passes: what the routers add to the mean loss, the same on every device.  Collective over all devices
 *  where there is no balance loss.  @return OK or ERR_COMM. */
enum error_code routers_loss(struct trainer *, double *loss, struct error *);

/** What sharing the sums sends. */
struct account routers_cost(const struct trainer *);

#endif
