/* data.h -- lesson 05: what data.c defines.  README.md explains it.
 *
 * All devices call a function together, with the same sizes.  A model has
 * parameters 0, 1, ..; parameter i has count[i] numbers, 1 or more.  Weights
 * and gradients of all parameters lie one after another in memory, parameter 0
 * first.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef DATA_H
#define DATA_H

#include "course.h"

struct model {
    int parameters;
    const int64_t *count;               /* numbers of each parameter */
    const int64_t *operations;          /* what computing each gradient takes */
    /* this device's part of the batch: the weights that it would like best */
    const float *target;
    float *weights;
    float *gradient;
};

/** Where parameter i begins in weights and gradient. */
static inline int64_t place_of(const struct model *m, int i)
{
    int64_t place = 0;
    for (int k = 0; k < i; k++) place += m->count[k];
    return place;
}

/** Compute this device's gradient of parameter i, that of 1/2 (weights -
 *  target)^2.  The backward pass computes the last parameter's first, and
 *  parameter 0's last: call it in that order. */
static inline void backward(struct model *m, int i)
{
    const int64_t from = place_of(m, i);
    for (int64_t k = from; k < from + m->count[i]; k++)
        m->gradient[k] = m->weights[k] - m->target[k];
    work((double)m->operations[i], 0);
}

/** Put parameters into buckets, from the last one to parameter 0.  A parameter
 *  goes into the open bucket
 *  {CLOSE: unless that would then have more than `most` numbers: then it is the
 *  first of a new one.|and if that then has `most` numbers or more it is
 *  closed: the next parameter is the first of a new one.}
 *  bucket[i] becomes the number of parameter i's bucket; that of the last
 *  parameter is 0.  Returns how many buckets there are. */
int make_buckets(const int64_t *count, int parameters, int64_t most,
                 int *bucket);

/** Afterwards m->gradient on every device is the mean of all devices'
 *  gradients:
 *  {MEAN: the sum of all devices', divided by W|the sum of what each device has divided by W}.
 *  One all_reduce a bucket, as soon as the gradients of the bucket are
 *  computed, on the stream beside the computations.  Allocates at most 4 bytes
 *  for each of the `parameters` arrays. */
void data_gradients(const struct group *, struct model *, int64_t most);

/** All devices take the weights of {ROOT: device 0|the last device}.  Then
 *  `steps` times: the gradients as above, and weights[k] -= rate *
 *  gradient[k]. */
void data_train(const struct group *, struct model *, int64_t most, int steps,
                float rate);

#endif
