/* loss_scale.h -- a factor on the loss that keeps small gradients inside fp16, found while training.
 *
 * The loss is multiplied by `scale` before backward, so every gradient is; the optimizer divides by it again
 * (struct step: gradient_scale).  A scale that makes a gradient overflow is seen in the gradients: that step is left
 * out, weights, states and count of steps as they were, and the scale backs off.  After `interval` good steps in a row
 * it grows.  All factors are powers of two, so that scaling is exact but for what it saves from underflow.
 *
 * Where several devices hold pieces of the gradients, they must agree on `overflow` before they call this.
 *
 * Source  P. Micikevicius et al., "Mixed precision training", arXiv:1710.03740, section 3.2, for scaling and for
 *         skipping the step; growing, backing off and their usual numbers are those of torch.cuda.amp.GradScaler.
 */
#ifndef ORRERY_LOSS_SCALE_H
#define ORRERY_LOSS_SCALE_H

#include "ref/numeric/tensor.h"

#define LOSS_SCALE_LEAST 0x1p-149       /* the smallest positive fp32 number */
#define LOSS_SCALE_MOST  0x1p127

struct loss_scale {
    double scale;               /* now; 1 with interval 0: no scaling */
    double growth, backoff;     /* factors, above and below 1 */
    int64_t interval;           /* good steps in a row before it grows; 0: it never changes */
    int64_t good;               /* so many were good since it last changed */
};

/** What a format needs: 2^16, doubled after 2000 good steps, halved on overflow, for fp16; 1, fixed, for all others. */
struct loss_scale loss_scale_usual(enum dtype);

/**
 * Adjust the scale after backward.
 * The scale does not fall below LOSS_SCALE_LEAST, nor rise above LOSS_SCALE_MOST.
 * @param overflow  a gradient, on any device, was infinite or NaN.
 * @return whether the step is to be taken; always true for a scale that never changes, where overflow shows in the
 *     loss.
 */
bool loss_scale_update(struct loss_scale *, bool overflow);

/** Whether all numbers of some tensors, of any floating-point format, are finite. */
bool tensors_finite(const struct tensor x[], int64_t count);

#endif
