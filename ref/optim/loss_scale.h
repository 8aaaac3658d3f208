/* loss_scale.h -- a factor on the loss that keeps small gradients in the range of fp16; adapted during training.
 *
 * The loss, and so every gradient, is multiplied by `scale` before backward; the optimizer divides by it
 * (struct step: gradient_scale).  If a gradient overflows, the step is skipped (weights, states and count of steps do
 * not change) and the scale is reduced.  After `interval` good steps in a row it grows.  All factors are powers of two,
 * so scaling is exact, except that fewer numbers underflow.  Other packages have other rules, which are other numbers
 * here: conventions.h.
 *
 * Where several devices hold pieces of the gradients, they must agree on `overflow` before they call this.
 *
 * Source  P. Micikevicius et al., "Mixed precision training", arXiv:1710.03740, section 3.2, for scaling and for
 *         skipping the step; growing, backing off and their usual numbers are those of torch.cuda.amp.GradScaler.
 * Called  Files of plan/, cli/, model/, verify/ and other rooms call these functions.  No function returns an error
 *         code.
 */
#ifndef ORRERY_LOSS_SCALE_H
#define ORRERY_LOSS_SCALE_H

#include "ref/numeric/tensor.h"
#include "ref/optim/conventions.h"

#define LOSS_SCALE_LEAST 0x1p-149       /* the smallest positive fp32 number */
#define LOSS_SCALE_MOST  0x1p127

struct loss_scale {
    double scale;               /* current scale; 1 with interval 0: no scaling */
    double growth, backoff;     /* factors, above and below 1 */
    int64_t interval;           /* good steps in a row before it grows; 0: it never changes */
    int64_t good;               /* good steps since it last changed; it begins at -late */
    int64_t late;               /* further good steps, at the beginning and after an overflow */
    int64_t hysteresis, left;   /* overflows that reduce it: only the last of so many; those left, 0 or 1: the next */
    bool refills;               /* a good step starts counting overflows again, and not only growth */
    double least;               /* it is not reduced below this */
    bool stops, exhausted;      /* an overflow at `least` ends the run; it has */
};

/** Return what training begins with in a format: for fp16 by the conventions, by default 2^16, doubled after 2000
 *  good steps, halved on overflow; for others fixed at 1. */
struct loss_scale loss_scale_of(const struct conventions *, enum dtype);

/** Whether a format needs a loss scale. */
static inline bool dtype_is_scaled(enum dtype dtype) { return dtype == F16; }

/**
 * Adjust the scale after backward, within LOSS_SCALE_LEAST and `least` .. LOSS_SCALE_MOST.
 * @param overflow  a gradient, on any device, was infinite or NaN.
 * @return whether to take the step; always true for a fixed scale: there an overflow shows in the loss.
 */
bool loss_scale_update(struct loss_scale *, bool overflow);

/** Whether all elements of these tensors, of any floating-point format, are finite. */
bool tensors_finite(const struct tensor x[], int64_t count);

#endif
