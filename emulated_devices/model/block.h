/* block.h -- one transformer block of a stage, with a scheme called at each seam. */
#ifndef ORRERY_BLOCK_H
#define ORRERY_BLOCK_H

#include "emulated_devices/model/memory.h"
#include "emulated_devices/model/stage.h"

/** Memory for what a block keeps between forward and backward, but `in`.  @return whether there was enough. */
bool block_make(struct stage *, const struct microbatch *, struct block_activations *);
void block_drop(struct stage *, struct block_activations *);
void block_drop_gradients(struct stage *, struct block_gradients *);

/** What a block keeps of a microbatch, `in` among it. */
struct kept block_keeps(const struct stage *, const struct microbatch *);

/** out = the block of m->block[].in.  Collective over the tp group. */
enum error_code block_forward(struct stage *, struct microbatch *m, int layer, struct tensor out, struct error *);

/** After forward: drop what the plan recomputes. */
void block_forget(struct stage *, struct microbatch *m, int layer);

/** Before backward: compute it again.  Collective over the tp group. */
enum error_code block_remember(struct stage *, struct microbatch *m, int layer, struct error *);

/** What is dropped in between. */
struct kept block_forgets(const struct stage *, const struct microbatch *, int layer);

/** d, the gradient of the block's output, becomes that of its input; the gradients of the linear layers' outputs stay in
 *  m->d_block, for block_backward_weight.  Collective over the tp group. */
enum error_code block_backward_input(struct stage *, struct microbatch *m, int layer, struct tensor d, struct error *);

/** Add to the gradients of the block's weights, and drop everything that the block kept.  Collective over the tp group. */
enum error_code block_backward_weight(struct stage *, struct microbatch *m, int layer, struct error *);

/** The dropout at a place of the residual stream, of a microbatch's tokens. */
struct dropout dropout_of(const struct stage *, const struct microbatch *, double p, int layer, const char *where);

#endif
