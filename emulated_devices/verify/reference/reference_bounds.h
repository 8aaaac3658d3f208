/* reference_bounds.h -- how far a twin's gradients are from the truth's.  Private to reference.c.
 *
 * In 16 bits a twin is disturbed only about three times as much as a correct program is (perturb.h), and its distance
 * in a tensor of few numbers is the root of few random squares: in one of five numbers a correct program is farther
 * than one twin in 1 of 100 cases, in one of 16 numbers in 1 of 100,000 (the F distribution, at a squared ratio of 11).
 * So there are as many twins as the smallest gradient needs for 16 distances of one number, and the largest distance
 * counts.  Gradients with more numbers have that of the last twin, which also takes the step.
 */
#ifndef ORRERY_REFERENCE_BOUNDS_H
#define ORRERY_REFERENCE_BOUNDS_H

#include "emulated_devices/verify/reference/reference.h"

/** How many twins measure the gradients of a plan. */
int twins_of_plan(const struct plan *);

/** Call before the first twin of a pass. */
void twins_begin(struct reference *);

/** Call after each twin but the last: note its distances where gradients have few numbers, and zero its gradients. */
void twins_keep(struct reference *);

/** The largest distance of a parameter's gradient in the twins of this pass. */
struct gradient_distance gradient_distance(const struct reference *, int param);

#endif
