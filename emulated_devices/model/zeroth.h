/* zeroth.h -- a training step without a backward pass, on a mesh: two losses, one slope, and every device steps what it
 * keeps.
 *
 * ref/model/mezo.h says what is computed.  Its two passes are shared out in two ways, which go together with tp, pp and
 * shards over dp:
 *
 *     --dp D                 each device makes both passes over its part of the batch           P = D      DDP
 *     --dp 2 --perturb 2     the first makes the + pass over the whole batch, the second the - pass       PertP
 *     --dp 2D --perturb 2    the first D the + pass over D parts of the batch, the others the - pass      2-D
 *
 * Sends     what a forward pass does over tp and pp, and what gathers weights over dp (data.h), once for each pass a
 *          device makes; then the sums of both sides' losses, 16 bytes: an all-reduce over the devices of one side, one
 *          between the two sides.  Whatever the model, no gradient travels.
 * Memory   weights as the data scheme keeps them, and one part of the model moved (two where the next is gathered
 *          meanwhile); a layer's activations, for one microbatch; no gradients, no optimizer state (of 16-bit weights
 *          the fp32 masters).
 * Equals   reassociates the two sums of losses, scaled by the labels of the whole batch.  One pass is the same
 *          whichever device makes it, and the sums are made in the same order with --perturb 2 and without (the other
 *          side's are zeros): the same D, tp and pp, the same bits, and also with weights in shards.  Another D adds
 *          losses in another order, and 1/(2 eps) times what that changes in a loss is in the slope.
 *
 * Source   L. Wang et al., "DistZO2", arXiv:2507.03211, for the three forms; S. Malladi et al., arXiv:2305.17333
 */
#ifndef ORRERY_ZEROTH_H
#define ORRERY_ZEROTH_H

#include "emulated_devices/model/trainer.h"

/** The groups of a trainer's device.  Local.  @return OK or ERR_MEMORY. */
enum error_code zeroth_open(struct trainer *, struct error *);

/** Both losses and the slope, on every device; instead of gradients.  The batch has been taken.
 * Collective over all devices. */
enum error_code zeroth_losses(struct trainer *, struct step_result *, struct error *);

/** What zeroth_losses sends for the losses alone. */
struct account zeroth_cost(const struct trainer *);

#endif
