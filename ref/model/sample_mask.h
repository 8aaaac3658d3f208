/* sample_mask.h -- several samples in one sequence: no token sees another sample. */
#ifndef ORRERY_SAMPLE_MASK_H
#define ORRERY_SAMPLE_MASK_H

#include "ref/error.h"
#include <stdint.h>

/**
 * The mask of sequences of packed samples: a token sees its sample from the first token up to itself.
 * Pure.
 * @param[out] mask   int32 [B*S, 2]: first and end of the positions in the sequence that each token sees.
 * @param within      int32 [B*S]: the position of each token in its sample; each sequence begins with a sample.
 * @return OK, or ERR_USAGE if a position is neither 0 nor the one after the last.
 */
enum error_code sample_mask(int32_t *mask, const int32_t *within, int64_t B, int64_t S, struct error *);

#endif
