/* rotary.h -- the angles of rotary positions, as a table of cosines and sines. */
#ifndef ORRERY_ROTARY_H
#define ORRERY_ROTARY_H

#include "ref/model/config.h"
#include "ref/numeric/tensor.h"

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
 * outward unless between_pairs.
 */
double rotary_frequency(const struct rotary *, int64_t R, int64_t i);

/** Columns R of a model's table of rotary positions. */
int64_t rotary_table_width(const struct model_config *);

/** Row p of the table [S,R]: cos of the R/2 angles p f_i, then their sines; of YaRN times `enlarged`.  Computed in
 *  double, rounded once. */
void rotary_table(const struct rotary *, struct tensor table);

#endif
