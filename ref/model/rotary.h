/* rotary.h -- the angles of rotary positions, as a table of cosines and sines.  Files of check/, model/, schemes/ and
 * ref/model/ call these functions.  No function returns an error code. */
#ifndef ORRERY_ROTARY_H
#define ORRERY_ROTARY_H

#include "ref/numeric/tensor.h"

struct model_config;            /* config.h */
struct rotary;

/**
 * Radians per token by which pair i of R/2 turns: f = theta^(-2i/R), then scaled.
 *
 * Linear: f / factor (S. Chen et al., "Extending context window of large language models via positional interpolation",
 * arXiv:2306.15595).  Llama 3 (as in transformers for Llama 3.1): let t = original_positions f / (2 pi), the turns in
 * the original context.  If t > high_frequency, f does not change; if t < low_frequency, f is divided by factor;
 * between them it is the mean of the two, weighted by (t - low) / (high - low).  Dynamic: f; in transformers it depends
 * on the factor only in sequences longer than max_position_embeddings, which is S, the longest we train.  YaRN (B. Peng
 * et al., arXiv:2309.00071, section 3.2, as transformers 5 has it): f (1 - ramp) + f / factor ramp, where ramp grows
 * linearly with i, from 0 at the pair with high_frequency turns to 1 at that with low_frequency; these two are rounded
 * outward unless between_pairs.  LongRoPE (Y. Ding et al., arXiv:2402.13753): f divided by a number of the pair: by
 * shorter[i], or in sequences of more than original_positions tokens by longer[i].
 * @param S  tokens of a sequence.
 */
double rotary_frequency(const struct rotary *, int64_t R, int64_t i, int64_t S);

/** The factor of cosines and sines. */
double rotary_size(const struct rotary *);

/** Columns R of a model's table of rotary positions. */
int64_t rotary_table_width(const struct model_config *);

/** Row p of the table [S,R], for sequences of S tokens: cos of the R/2 angles p f_i, then their sines, times
 *  rotary_size.  Computed in double, rounded once. */
void rotary_table(const struct rotary *, struct tensor table);

#endif
