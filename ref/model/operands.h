/* operands.h -- what operations get that follows from a config alone: factors, the attention of a layer, dropout.
 *
 * The one-device model, devices and the checker take them from here.  Files of check/, model/, verify/, ref/golden/
 * and other rooms call these functions.  No function returns an error code.
 */
#ifndef ORRERY_OPERANDS_H
#define ORRERY_OPERANDS_H

#include "ref/ops/ops.h"

struct model_config;

/* Tensors that a model may multiply by a number of its config. */
enum model_factor { FACTOR_EMBEDDING, FACTOR_RESIDUAL, FACTOR_LOGITS };

/** Whether a model multiplies such a tensor. */
bool model_has_factor(const struct model_config *, enum model_factor);

/** The number; 1 if there is none.  The root of the width is rounded to the format of the weights, as in transformers;
 *  others are numbers of Python there, which are not. */
double model_factor(const struct model_config *, enum model_factor, enum dtype);

/** The factor on scores of attention: with latent attention YaRN also sharpens the softmax. */
double attention_scale(const struct model_config *);

/** Attention of a layer on sequences of S tokens: all heads, no dropout. */
struct attention attention_of_layer(const struct model_config *, int64_t layer, int64_t S);

/** The dropout seed of a step, from 0, of a run with this seed. */
uint64_t dropout_seed(uint64_t seed, int64_t step);

/** The dropout at a place of the model, the same on every device.  `where`: "embedding", "attention", "mlp". */
struct dropout dropout_at(double p, uint64_t seed, int layer, const char *where, int64_t row0, int64_t col0,
                          int64_t cols);

#endif
