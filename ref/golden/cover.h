/* cover.h -- draws batches that show as many kinds of mistakes as fit (coverage.h).
 *
 * cli/golden/make.c calls cover_draw.
 */
#ifndef ORRERY_COVER_H
#define ORRERY_COVER_H

#include "ref/golden/golden.h"

/**
 * Draw the batches of all steps.  A label is the next token of its sequence.  Tokens at borders of the vocabulary are
 * inputs and labels of the first step, a token repeats, and some first labels are ignored.  Of a mixture the first step
 * is drawn again until every expert has a token; the last step has few different tokens, so that some expert has none.
 * The seed alone decides what is drawn.
 * @param golden   its config, seed, steps, B, S and micros are set; ids and labels are allocated (batch_allocate).
 * @param weights  folder of the weights (weights.h); NULL: drawn from the seed.
 * @return OK; of a mixture as transformer_open and weights_load.
 */
enum error_code cover_draw(struct golden *golden, const char *weights, struct error *);

#endif
