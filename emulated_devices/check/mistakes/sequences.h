/* sequences.h -- which sequences wrong gradients of a step are the sum of, and how often each of them counts.
 *
 * Gradients are linear in sequences.  Our model runs each sequence of this batch, of that before and of the next by
 * itself, from ACTUAL's own weights, in fp64; what is observed is then written as a sum of these by least squares
 * (sequence_fit.h).
 * emulated_devices/cli/check_judged.c asks once, for the first step with a wrong gradient.
 */
#ifndef ORRERY_SEQUENCES_H
#define ORRERY_SEQUENCES_H

#include "emulated_devices/check/dump/assembly.h"
#include "emulated_devices/check/mistakes/cuts.h"
#include "ref/golden/golden.h"

/* A wrong gradient: "grad/wte.weight", "adamw/2/grad/wte.weight"; its bound, norm over norm. */
struct wrong_gradient { const char *name; double bound; };

/**
 * Explain the wrong gradients of a step.
 * @param cuts  the parts that ranks and microbatches may have.
 * @param all   [count] of one step; the first is the one that the words are about.
 * @return out: "sequence 3 counts twice and sequence 4 not at all: dp rank 1 has sequence 3 again".  Empty: no such sum
 *         is within the bounds, one factor of all sequences is, or a tensor cannot be read or a pass cannot be run.
 */
const char *sequences_describe(char *out, size_t size, const struct golden *, const struct actual *,
                               const struct batch_cuts *cuts, const struct wrong_gradient all[], int count);

#endif
