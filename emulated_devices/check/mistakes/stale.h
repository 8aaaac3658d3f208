/* stale.h -- whether a wrong gradient is that of the step before, or made with the weights of the step before, or by
 * copies of the model that have each other's inputs, labels or masks.
 * emulated_devices/cli/check_judged.c asks it about the first wrong gradient. */
#ifndef ORRERY_STALE_H
#define ORRERY_STALE_H

#include "emulated_devices/check/dump/assembly.h"
#include "emulated_devices/check/mistakes/cuts.h"
#include "ref/golden/golden.h"

/**
 * Compare a wrong gradient of a later step with that of the step before in ACTUAL: the same numbers, or added to what
 * is right within the tensor's bound.  Then compare with what our model gives, in fp64, with something else in place of
 * what the step should have (the weights that the step before began with, another copy's inputs, labels or masks),
 * within the bound and much nearer than what is right.  Corrections of routers are those that the step begins with.
 * @param cuts   in which copies may take turns.
 * @param name   "grad/wte.weight" of the first step, "adamw/2/grad/wte.weight".
 * @param bound  norm over norm.
 * @return out: "stale: it is that of step 1", "stale weights: ...", "copies take turns: ..."; empty if it is none, or
 *         no such gradient, or cannot be read.
 */
const char *stale_describe(char *out, size_t size, const struct golden *, const struct actual *,
                           const struct batch_cuts *cuts, const char *name, double bound);

#endif
