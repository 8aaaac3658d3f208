/* partial.h -- layers that some sequences of the batch skip (their residual stream is unchanged): partial pipelines.
 * backward.c and forward.c call these functions.  No function returns an error code. */
#ifndef ORRERY_PARTIAL_H
#define ORRERY_PARTIAL_H

#include "ref/model/transformer.h"

/** After a layer's forward: for sequences that skip the layer, output = input. */
void partial_forward(const struct transformer *, int layer, struct tensor out);

/** Before and after a layer's backward.  begin saves the rows of m->d_stream of sequences that skip the layer, and sets
 *  them to zero, so that they add nothing to the layer's gradients; end restores them. */
void partial_backward_begin(struct transformer *, int layer);
void partial_backward_end(struct transformer *, int layer);

#endif
