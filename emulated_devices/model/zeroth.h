/* zeroth.h -- a training step without a backward pass, on a mesh: two losses, one slope, and every device steps what it
 * keeps.
 *
 * Zeroth order means an optimizer that uses values of the loss only, and no derivatives.  model/trainer_open.c calls
 * zeroth_open, model/trainer.c zeroth_losses, and model/trainer_cost.c zeroth_cost, if the optimizer draws directions.
 * ref/model/mezo.h defines what is computed.  Its two passes can be distributed in these ways, each also with tp, pp
 * and shards over dp:
 *
 *     --dp D                 each device does both passes over its part of the batch           P = D      DDP
 *     --dp 2 --perturb 2     the first does the + pass over the whole batch, the second the - pass        PertP
 *     --dp 2D --perturb 2    the first D do the + pass over D parts of the batch, the others the - pass   2-D
 *
 * Sends    for each pass of a device, what a forward pass sends over tp and pp, and what gathers weights over dp
 *          (data.h); then the sums of both sides' losses, 16 bytes, in two all-reduces: over the devices of one side,
 *          and between the two sides.  No gradient is sent.
 * Memory   weights as the data scheme keeps them; a perturbed copy of one part of the model (of two while the next is
 *          gathered); activations of one layer for one microbatch; no gradients and no optimizer state (for 16-bit
 *          weights the fp32 masters).
 * Equals   reassociates the two sums of losses, scaled by the labels of the whole batch.  A pass gives the same bits on
 *          any device, and the sums have the same order with and without --perturb 2 (the other side's summands are
 *          zeros).  So for the same D, tp and pp the bits are equal, also with sharded weights.  Another D adds losses
 *          in another order; the slope has that difference times 1/(2 eps).  With exact sums losses
 *          of tokens are integers on one grid, so every D has the same bits.
 *
 * Source   L. Wang et al., "DistZO2", arXiv:2507.03211, for the three forms; S. Malladi et al., arXiv:2305.17333
 */
#ifndef ORRERY_ZEROTH_H
#define ORRERY_ZEROTH_H

#include "emulated_devices/model/trainer.h"

/** Create the groups that sum losses.  Local.  @return OK or ERR_MEMORY. */
enum error_code zeroth_open(struct trainer *, struct error *);

/** Compute both losses and the slope, on every device, instead of gradients.  The step's batch must be set.
 *  Collective over all devices.
 *  @return OK, or an error of a forward pass or of the all-reduce of losses.  An error may be on this device only;
 *          trainer_gradients then ends the whole job, because other devices wait for messages. */
enum error_code zeroth_losses(struct trainer *, struct step_result *, struct error *);

/** Return what zeroth_losses sends to sum the losses, without the passes. */
struct account zeroth_cost(const struct trainer *);

#endif
