/* expert_invariants.h -- what schemes promise of what they copy and choose, besides that results are right.
 *
 * `orrery verify` holds every layer and microbatch of its cases to them (verify/reference/adaptation.h).  They are
 * computed from the choices that devices have told each other, without the scheme's code.
 *
 * verify/reference/adaptation.c and verify/cases/drawn.c run the lists; schemes name them in head.invariants.  A broken
 * promise is ERR_CHECK with the layer and the numbers.
 */
#ifndef ORRERY_EXPERT_INVARIANTS_H
#define ORRERY_EXPERT_INVARIANTS_H

#include "emulated_devices/schemes/experts/experts.h"

/* The `seen` of an expert scheme's invariants. */
struct expert_seen {
    const struct expert_parallel *ep;   /* with the layer and the routing of the call */
    const int64_t *load;                /* [E] choices of the layer's experts in the last LOAD_WINDOW steps, counted
                                         * beside the scheme; NULL: not known */
    bool early;                         /* weights for the backward pass can leave before it: they are on their device,
                                         * and the stage computes something else before */
    /* For a scheme that predicts: rows of a microbatch in their order outside attention, of which each of `sharing`
     * devices has a range (block_at).  NULL: of no such scheme. */
    const int32_t *part;                /* [rows] where a row's experts probably are; -1: not known */
    const int *own;                     /* [sharing] the part of the experts that each device has */
    int64_t rows;                       /**< Rows of the microbatch. */
    int sharing;                        /**< Devices that share the rows. */
};

extern const struct invariant fssdp_invariants[], tutel_invariants[], speculative_invariants[];

#endif
