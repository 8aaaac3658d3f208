/* conventions.h -- tries the named losses of the registry (ref/optim/conventions.c) on a wrong loss or gradient.
 * loss.c and mixture.c of mistakes/ call suspect_conventions after their own rows.  Inside check/ only. */
#ifndef ORRERY_MISTAKES_CONVENTIONS_H
#define ORRERY_MISTAKES_CONVENTIONS_H

#include "emulated_devices/check/mistakes/mistakes.h"

/** Offer what a pass gives under each other convention of losses, in words with its --as; nothing, if the result is
 *  explained already.  y: [count] to work in. */
void suspect_conventions(struct suspect *, const struct single_node *, enum single_pass_kind, double *y);

#endif
