/* mixture.h -- a mixture of experts on many devices: the terms that its routers add to the loss.
 *
 * balance.h has the balance loss of each microbatch or sequence.  The gradient of a balance loss of the whole batch is
 * unknown until the last forward pass.  Then one small all-reduce gives all devices the counts, and backward passes can
 * start.  Files of model/ and run/ call these functions.
 */
#ifndef ORRERY_MIXTURE_H
#define ORRERY_MIXTURE_H

#include "emulated_devices/model/trainer.h"

/** Allocate the sums of a step.  Local.  @return OK or ERR_MEMORY. */
enum error_code routers_open(struct trainer *, struct error *);
void routers_close(struct trainer *);

/** Before a step: set the sums to zero. */
void routers_begin(struct trainer *);

/** Give a section of this device what the routers of all sections share: biases, choices, and what losses are means
 *  over.  Its sums stay its own until routers_loss.  After routers_begin of both.  Local. */
void routers_lend(const struct trainer *whole, struct trainer *section);

/** After all forward passes of a model with a balance loss of the whole batch: add the counts of all devices and set
 *  the slopes.  Collective over all devices.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code routers_share(struct trainer *, struct error *);

/** After the passes: what the routers add to the replica's mean loss, the same on all its devices.  If it is not
 *  finite, also where logits are not (routers.lost).  Collective over the replica.  @return OK or ERR_COMM. */
enum error_code routers_loss(struct trainer *, double *loss, struct error *);

/** Say where logits are not finite: which router, and which row of the batch.  @param lost  as routers.lost. */
void routers_name_lost(const struct trainer *, double lost, struct step_result *);

/** After an optimizer's step: move the correction biases by the choices of all devices.  Local, the same on all. */
void routers_update(struct trainer *);

/**
 * Who should own which experts, by their loads in the last steps, of a scheme that remembers them.  Collective over all
 * devices; counted as CONTROL.
 * @param[out] owners  on rank 0, for expert_owners_free; elsewhere none.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code experts_place(struct trainer *, struct expert_owners *owners, struct error *);

/** From now on keep the choices of this device's rows of a step.  Local.  @return OK or ERR_MEMORY. */
enum error_code routers_watch(struct trainer *, struct error *);

/** After a step: bring the choices of all devices' rows to rank 0, and forget this device's.  Collective over all
 *  devices; counted as CONTROL.
 *  @param[out] choice  [L, rows of the batch, k] on rank 0, of layers that are mixtures: as in a load's file; those of
 *                      an even load for rows that skip a layer.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code routers_bring(struct trainer *, int32_t *choice, struct error *);

/** Return what sharing the sums sends. */
struct account routers_cost(const struct trainer *);

#endif
