/* observer.h -- who sees the tensors of a one-device model.
 * ref/model calls an observer: the language model (transformer.h) and its encoders (modality.h).
 */
#ifndef ORRERY_OBSERVER_H
#define ORRERY_OBSERVER_H

#include "ref/numeric/tensor.h"

/* Receives each tensor just after it was computed, and may change it. */
struct observer {
    /* name: "ln_1", "attn.qkv", ...; layer: -1 before the blocks, L after; gradient: t is the gradient of that tensor;
     * terms: products that each element sums, the n of its rounding error. */
    void (*see)(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms);
    void *context;                      /**< First argument of `see`. */
};

#endif
