/* stale.h -- whether a gradient of a later step is that of the step before. */
#ifndef ORRERY_STALE_H
#define ORRERY_STALE_H

#include "emulated_devices/verify/check/assembly.h"
#include "ref/golden/golden.h"

/**
 * Compare a wrong gradient of step 2, 3, ... with that of the step before in ACTUAL: the same numbers, or added to what
 * is right within the tensor's bound.
 * @param name   "adamw/2/grad/wte.weight".
 * @param bound  norm over norm.
 * @return out: "stale: it is that of step 1"; empty if it is neither, or no such gradient, or cannot be read.
 */
const char *stale_describe(char *out, size_t size, const struct golden *, const struct actual *, const char *name,
                           double bound);

#endif
