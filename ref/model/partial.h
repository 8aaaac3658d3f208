/* partial.h -- layers that some sequences of the batch pass by, their residual stream untouched: partial pipelines. */
#ifndef ORRERY_PARTIAL_H
#define ORRERY_PARTIAL_H

#include "ref/model/transformer.h"

/** After a layer's forward: the output of sequences that pass it by becomes their input. */
void partial_forward(const struct transformer *, int layer, struct tensor out);

/** Round a layer's backward, which works on m->d_stream: gradients of sequences that pass it by are put aside and stand
 *  at zero meanwhile, so that the layer's weights get nothing from them; then they are put back. */
void partial_backward_begin(struct transformer *, int layer);
void partial_backward_end(struct transformer *, int layer);

#endif
