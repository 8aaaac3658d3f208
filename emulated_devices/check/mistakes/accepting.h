/* accepting.h -- what files of this room ask of a suspect: its right elements, its size, and its words at the end.
 * Inside check/mistakes/ only; mistakes.h has how a hypothesis is offered.
 */
#ifndef ORRERY_MISTAKES_ACCEPTING_H
#define ORRERY_MISTAKES_ACCEPTING_H

#include "emulated_devices/check/mistakes/mistakes.h"

/* Wrong elements that hardly agree by chance, measured as accepting.c says: 32 loses a diagnosis, 2 none. */
enum { LEAST_THERE = 8 };

/* The square root of the sum of n squares. */
double suspect_norm_of(const double *x, int64_t n);

/* An element within its bound is right, and a mistake need not explain it. */
bool suspect_is_right(const struct suspect *, int64_t i);

/* Note some wrong elements, evenly from the first to the last of them.  A few wrong elements are looked at all. */
void suspect_take_samples(struct suspect *);

/* The words that explain the result; "": none.  Many hypotheses come near a single number, and one or the other agrees
 * by chance.  So only one of few counts, or one that is far nearer than any other. */
const char *suspect_said(const struct suspect *);

#endif
