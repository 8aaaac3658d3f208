/* sample_mask.h -- several samples in one sequence: no token sees another sample.  Files of model/, ref/golden/,
 * ref/model/, check/ and other rooms call these functions. */
#ifndef ORRERY_SAMPLE_MASK_H
#define ORRERY_SAMPLE_MASK_H

#include "ref/model/attention_mask.h"
#include <stdbool.h>
#include <stdint.h>

/* A list `within` says of each token of packed sequences its position in its sample.  Padding is one more sample, which
 * is marked: -1 - position.  Attention and experts compute it as any sample; the routers' losses and loads leave it
 * out. */
static inline bool is_padding(int32_t within) { return within < 0; }
static inline int32_t sample_position(int32_t within) { return within < 0 ? -1 - within : within; }
static inline int32_t padding_at(int32_t position) { return -1 - position; }

/**
 * The next tokens that are no padding, from *first on, which moves to the first of them.
 * @param within  of n tokens; NULL: none of them is padding.
 * @return how many follow one another; 0: there are none up to n.
 */
int64_t tokens_without_padding(const int32_t *within, int64_t n, int64_t *first);

/**
 * The mask of sequences of packed samples: what a token sees of its sample, usually from the first token up to itself.
 * Pure.
 * @param[out] sees   int32 [B*S, ranges, 2]: first and end of the positions in the sequence that each token sees.
 * @param mask        of each sample: attention_mask.h.
 * @param within      int32 [B*S]; each sequence begins with a sample.  NULL: each sequence is a sample.
 * @return OK, or ERR_USAGE if a position is neither 0 nor the one after the last.
 */
enum error_code sample_mask(int32_t *sees, const struct attention_mask *mask, const int32_t *within, int64_t B,
                            int64_t S, struct error *);

#endif
