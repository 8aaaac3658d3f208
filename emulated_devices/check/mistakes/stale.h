/* stale.h -- whether a gradient of a later step is that of the step before, or made with the weights or the batch of
 * the step before, or by copies of the model that have each other's inputs or masks.
 * emulated_devices/cli/check.c asks it about each wrong gradient of a later step. */
#ifndef ORRERY_STALE_H
#define ORRERY_STALE_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/golden.h"

/**
 * Compare a wrong gradient of step 2, 3, ... with that of the step before in ACTUAL: the same numbers, or added to what
 * is right within the tensor's bound; then with what our model gives, in fp64, with something else in place of what the
 * step should have (the weights that the step before began with, its batch, another copy's inputs or masks), within the
 * bound and much nearer than what is right.  Corrections of routers are those that the step begins with.
 * @param name   "adamw/2/grad/wte.weight".
 * @param bound  norm over norm.
 * @return out: "stale: it is that of step 1", "stale weights: ...", "copies take turns: ..."; empty if it is none, or
 *         no such gradient, or cannot be read.
 */
const char *stale_describe(char *out, size_t size, const struct golden *, const struct actual *, const char *name,
                           double bound);

#endif
