/* accumulation.h -- lesson 06: what accumulation.c defines.  README.md
 * explains it.
 *
 * A device computes its part of the batch in microbatches, one after another.
 * Each has a number of labels: tokens that have to be predicted.  The loss of
 * a batch is the mean over all its labels, on all devices; a microbatch or a
 * device may have none.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef ACCUMULATION_H
#define ACCUMULATION_H

#include "course.h"

struct batch {
    /* microbatches of this device, 1 or more; others may have more or fewer */
    int micros;
    const int64_t *labels;              /* of each microbatch, 0 or more */
    const float *loss, *means;          /* for micro_backward */
    int64_t n;                          /* numbers of a gradient */
};

/** Forward and backward of microbatch m, as frameworks have it: `into` becomes
 *  the gradient of the mean loss over the labels of this microbatch, n
 *  numbers.  Returns that mean.  Without labels all of them are 0/0, not a
 *  number.  Call it once for each microbatch, also for those without labels,
 *  from the {ORDER: first to the last|last to the first}. */
static inline float micro_backward(const struct batch *b, int m, float *into)
{
    memcpy(into, b->means + m * b->n, sizeof *into * (size_t)b->n);
    work(1e6, 0);
    return b->loss[m];
}

/** The mean over all labels, from the means of several microbatches, in
 *  double.  0 if there are no labels. */
double mean_loss(const double *loss, const int64_t *labels, int micros);

/** The batch's gradient on all devices: the gradient of the mean over the
 *  labels of all microbatches of all devices.  To `gradient` a device adds,
 *  microbatch after microbatch beginning with 0, the mean gradient times the
 *  number of labels; then one all_reduce adds the devices', and the sum is
 *  divided by the number of labels.  All in float.  gradient has room for n +
 *  2 numbers; at first nobody has written them, and what the last two are
 *  afterwards does not matter.  Calls all_reduce once, and no other
 *  collective; allocates at most n numbers.  Returns the mean loss, computed
 *  in the same way.  Without any label gradient and loss are 0. */
float batch_gradient(const struct group *, const struct batch *,
                     float *gradient);

/** Returns the norm of a gradient, the root of the sum of squares: squared,
 *  and added from the first to the last, in double.
 *  {EPS: If it is larger than `most`, each number is multiplied by
 *  (float)(most / norm).|Each number is multiplied by
 *  (float)(most / (norm + 1e-6)), if that is less than 1.} */
double clip(float *gradient, int64_t n, double most);

#endif
