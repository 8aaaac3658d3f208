/* ends.h -- what the first and the last stage have besides blocks: the embedding and the loss. */
#ifndef ORRERY_ENDS_H
#define ORRERY_ENDS_H

#include "emulated_devices/model/memory.h"
#include "emulated_devices/model/stage.h"

/** x = this device's piece of the microbatch's embedded tokens.  Collective over the tp group. */
enum error_code embedding_forward(struct stage *, struct microbatch *, struct tensor x, struct error *);

/** Add to the gradients of the embeddings, and drop m->d_in.  Collective over the tp group. */
enum error_code embedding_backward_weight(struct stage *, struct microbatch *, struct error *);

/** Add the microbatch's losses, from m->out, to the stage's.  Collective over the tp group. */
enum error_code loss_forward(struct stage *, struct microbatch *, int micro, struct error *);

/** What the loss keeps of a microbatch, m->out among it; and drop it. */
struct kept loss_keeps(const struct stage *, const struct microbatch *);
void loss_drop(struct stage *, struct microbatch *);

/** m->d_out = the gradient of the last layer's output.  Logits become their own gradient, which the weights' part uses.
 *  Collective over the tp group. */
enum error_code loss_backward_input(struct stage *, struct microbatch *, struct error *);

/** Add to the gradients of the output matrix and the last norm, and drop what the loss kept.  Collective over the tp group. */
enum error_code loss_backward_weight(struct stage *, struct microbatch *, struct error *);

#endif
