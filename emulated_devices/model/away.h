/* away.h -- activations on the slow tier between forward and backward: --offload activations.
 *
 * Source  H. Ge et al., "ByteScale", arXiv:2502.21231, section 5.2: token-level collaboration of the host's memory
 * Called  stage.c, trainer_cost.c and trainer_open.c call these functions.
 *
 *   forward   layer          0    1    2    3          of 4 layers the first 2 leave
 *             to the tier         0    1               while the next one computes; then its memory is free
 *   backward  layer          3    2    1    0
 *             from the tier       1    0               while the one above computes
 *
 * So the device has at most two of these layers at once, and the last two layers of a stage always stay.  What a layer
 * keeps is its input and what recomputation does not drop (link.h).  An attention scheme that plans each batch may let
 * fewer layers leave (context_plan.h).  Then every second layer or so leaves, and its copy may take as long as the
 * layers until the next one that leaves.  The numbers are only stored elsewhere: no bit changes.
 */
#ifndef ORRERY_AWAY_H
#define ORRERY_AWAY_H

#include "emulated_devices/model/stage.h"

/** How many of the stage's layers leave for a microbatch. */
int away_layers(const struct stage *, const struct microbatch *);

/** Whether a layer leaves: of `most` that may, `layers` do, as far apart as possible, beginning with the first.  Then a
 *  copy has most/layers layers' time to end in.  Pure. */
bool away_is_chosen(int layers, int most, int layer);

/** Set the places on the tier for the stage's current microbatches; nothing may be in flight.  An open tier grows if it
 *  is too small.  Local.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code away_cut(struct stage *, struct error *);

/** Open the tier: the host's memory, or a file.  Local.  @return OK, ERR_FILE naming the folder, or ERR_MEMORY. */
enum error_code away_open(struct stage *, struct error *);
void away_close(struct stage *);

/** After a layer's forward pass: free the layer below, which has left, and let this one leave. */
enum error_code away_after_forward(struct stage *, struct microbatch *, int layer, struct error *);

/** Before a layer's backward pass: wait until it is back, and fetch the layer below.
 *  @return OK, ERR_MEMORY, or ERR_FILE if the file cannot be read. */
enum error_code away_before_backward(struct stage *, struct microbatch *, int layer, struct error *);

/** Update the count of memory likewise, without moving anything. */
void away_forward_held(const struct stage *, int micro, int layer, struct held *);
void away_backward_held(const struct stage *, int micro, int layer, struct held *);

/** Return what one of the stage's current microbatches writes to the tier and reads, by formula. */
struct tier_traffic away_moves(const struct stage *, int micro);

#endif
