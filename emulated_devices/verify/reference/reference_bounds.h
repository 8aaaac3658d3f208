/* reference_bounds.h -- how far a twin's gradients are from the truth's.  Private to reference.c.  No function
 * returns an error code. */
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
 *  mean square of what the whole gradient may be off by, its rounding included.  Of few numbers the farthest, too, may
 *  by chance be near the truth.  Of at most 16 four times the root mean square is at least the norm, and no element is
 *  further off than all together.  So a gradient that holds there is within its reach, whatever the twins are. */
double gradient_reach(const struct reference *, int param);

#endif
