/* zero.h -- lesson 07: what zero.c defines.  README.md explains it.
 *
 * W devices train copies of one model, as in lesson 05; now they share what
 * each of them would have.  A vector of n numbers is shared in blocks: device
 * r has block_of(n, W, r), which may be empty.  The judge calls these
 * functions through calls.c (`orrery learn`).
 */
#ifndef ZERO_H
#define ZERO_H

#include "course.h"

/* The optimizer: SGD with momentum.  One step of one number, all in float, v
 * being its momentum, and `gradient` the sum of all devices', divided by W:
 *
 *     {MOMENTUM: v = beta v + gradient|v = beta v + (1 - beta) gradient}
 *     weight = weight - rate v
 */
struct optimizer { float rate, beta; };

/** Bytes of a device for a model of so many parameters, as the ZeRO paper
 *  counts them (arXiv:1910.02054): 2 for a weight, 2 for its gradient, 12 for
 *  the optimizer's states.  stage 0: nothing is shared; 1: states; 2: and
 *  gradients; 3: and weights.  Blocks of parameters / W, also if that is not a
 *  whole number. */
double zero_memory(double parameters, int W, int stage);

/* ---- ZeRO-1: states are shared ------------------------------------------ */

/** This device's gradient of 1/2 (weights - target)^2, n numbers. */
static inline void whole_gradient(const float *weights, const float *target,
                                  float *gradient, int64_t n)
{
    for (int64_t k = 0; k < n; k++) gradient[k] = weights[k] - target[k];
}

/** A step.  weights, target and gradient have n numbers on each device, v only
 *  this device's block.  Each device updates its block; afterwards all of them
 *  have all new weights.  What `gradient` is afterwards does not matter.  One
 *  reduce_scatter, one all_gather; allocates at most ceil(n/W) numbers. */
void zero1_step(const struct group *, const struct optimizer *, float *weights,
                const float *target, float *gradient, float *v, int64_t n);

/* ---- ZeRO-3: states, gradients and weights are shared, layer by layer --- */

/* A layer halves what comes from the layer before and adds the mean of its
 * weights: seen[l] = seen[l-1] / 2 + mean.  So the error that backward hands
 * down from a layer is half of what came from above, and that of the last
 * layer is what it gave: a layer's gradient needs all layers above it. */
struct shared_model {
    int layers;                         /* 1 or more */
    const int64_t *count;               /* numbers of each layer, 1 or more */
    const float *target;                /* of layer 0, then of layer 1, .. */
    /* this device's block of layer 0, then its block of layer 1, .. */
    float *weights, *v;
    float *seen;                        /* what each layer gives, by forward */
    float error;                        /* from the layer above, by backward */
};

/** Where layer l begins in `target`. */
static inline int64_t layer_place(const struct shared_model *m, int l)
{
    int64_t place = 0;
    for (int i = 0; i < l; i++) place += m->count[i];
    return place;
}

/** The forward pass of layer l, with all of its weights. */
static inline void forward(struct shared_model *m, int l, const float *weights)
{
    float sum = 0;
    for (int64_t k = 0; k < m->count[l]; k++) sum += weights[k];
    m->seen[l] = (l > 0 ? m->seen[l - 1] / 2 : 0) + sum / (float)m->count[l];
}

/** This device's gradient of layer l, from all of its weights and the error of
 *  the layer above; leaves the error for the layer below. */
static inline void backward(struct shared_model *m, int l,
                            const float *weights, float *gradient)
{
    if (l == m->layers - 1) m->error = m->seen[l];
    whole_gradient(weights, m->target + layer_place(m, l), gradient,
                   m->count[l]);
    for (int64_t k = 0; k < m->count[l]; k++) gradient[k] += m->error;
    m->error = m->error / 2;
}

/** A step: forward from layer 0 to the last, then backward from the last to
 *  layer 0; as soon as a layer's gradient is reduced, this device's block of
 *  the layer is updated.  A layer's weights are gathered before its forward
 *  pass, released after it, and gathered again for its backward pass;
 *  {KEEP: also the last one's|but those of the last layer are kept from
 *  forward to backward}.  At any time this device has allocated at most two
 *  whole layers (weights and gradient) and one block of a layer. */
void zero3_step(const struct group *, const struct optimizer *,
                struct shared_model *);

#endif
