/* vocabulary.h -- lesson 10: what vocabulary.c defines; README.md explains it.
 *
 * The last layer's outputs, the logits, have a column for each of the V tokens
 * of the vocabulary.  Device r has {LAYOUT: those of block_of(V, W, r)|columns r, r + W, r + 2W, .., like cards};
 * `own` is the number of its columns, which may be 0.  logits and gradient have
 * a row for each of T positions of the text, and `own` numbers in a row.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "course.h"

/** max[t] becomes the largest logit of row t on all devices.  Devices can send
 *  sums and blocks, but no maxima: gather what each device has found, one
 *  all_gather for all rows. */
void vocabulary_max(const struct group *, const float *logits, int T,
                    int64_t own, float *max);

/**
 * The loss, on all devices, and this device's columns of its gradient with
 * respect to the logits.
 *
 * The loss is the mean, over the rows with a label, of
 *     -(1 - smoothing) log p[label] - smoothing mean over v of log p[v],
 * where p is the softmax of the row over the whole vocabulary.  labels[t] is a
 * column 0 .. V-1, or -1: no label; such a row has a gradient of 0, and does
 * not count.  Without any label loss and gradient are 0.
 *
 * Devices send no logits: a vocabulary_max, and one all_reduce of at most 3 T
 * numbers.  Allocates at most (W + 4) T numbers.  Sums in float are good
 * enough.
 */
double vocabulary_loss(const struct group *, const float *logits,
                       const int64_t *labels, int T, int64_t V, int64_t own,
                       double smoothing, float *gradient);

#endif
