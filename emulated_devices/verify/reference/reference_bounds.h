/* reference_bounds.h -- how far a twin's gradients are from the truth's.  Private to reference.c. */
#ifndef ORRERY_REFERENCE_BOUNDS_H
#define ORRERY_REFERENCE_BOUNDS_H

#include "emulated_devices/verify/reference/reference.h"

/** Call before the first twin of a pass. */
void twins_begin(struct reference *);

/** Call before another twin: note the distances of the one before, and zero its gradients. */
void twins_keep(struct reference *);

/** The largest distance of a parameter's gradient in the twins of this pass. */
struct gradient_distance gradient_distance(const struct reference *, int param);

/** By how much one element of that gradient may be off: by as much as a twin's farthest element, or four times the root
 *  mean square of all; of few numbers the farthest, too, may by chance be near. */
double gradient_reach(const struct reference *, int param);

#endif
