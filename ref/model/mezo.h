/* mezo.h -- training by forward passes alone: two losses, on either side of the weights along a direction that nobody
 * keeps.
 *
 *     z       a number for each element of each parameter, drawn anew in every step
 *     l+, l-  the loss at w + eps z and at w - eps z, of the same batch and with the same dropout
 *     slope   (l+ - l-) / (2 eps): the derivative of the loss along z, but for O(eps^2)
 *     w       = w - lr slope z: a step of SGD whose gradient is slope z
 *
 * z is no state: element i of a parameter is a pure function of (seed, step, the parameter's name, i), from the counter
 * generator that draws initial weights (random_normal in philox.h: mean 0, variance 1, at most 4.9 in size).  Whoever
 * has any piece of a parameter draws its z, as often as it is needed, and all have the same.
 *
 * Moved weights are always made of the kept ones, w + (+-eps) z, and never moved on: adding eps z, taking away 2 eps z
 * and adding eps z again would leave the rounding of three sums in the weights, and who computes one side only another
 * one than who computes both.
 *
 * The authors' code (princeton-nlp/MeZO, large_models/trainer.py) takes both losses without dropout; --dropout 0 does
 * that here.
 *
 * Source  S. Malladi et al., "Fine-tuning language models with just forward passes", arXiv:2305.17333, algorithm 1;
 *         two-sided differences along a random direction: J. Spall, doi:10.1109/9.119632
 */
#ifndef ORRERY_MEZO_H
#define ORRERY_MEZO_H

#include "ref/model/transformer.h"

/** What names the direction of a step. */
uint64_t mezo_key(uint64_t seed, int64_t step);

/** z of elements first .. first + n - 1 of a parameter. */
void mezo_draw(const struct param_spec *, uint64_t key, int64_t first, int64_t n, double *z);

/** w += along z for these elements, which begin at w.  Rounding: the sum in double, then once to the format. */
void mezo_move(const struct param_spec *, uint64_t key, double along, int64_t first, int64_t n, enum dtype, void *w);

/** The slope, of the losses on either side. */
static inline double mezo_slope(const double loss[2], double eps) { return (loss[0] - loss[1]) / (2 * eps); }

/**
 * The loss at w + along z.  Activations stay those of that pass; the weights are untouched.
 * @return as transformer_forward.
 */
enum error_code transformer_loss_along(struct transformer *, uint64_t key, double along, const int32_t *ids,
                                       const int32_t *labels, int64_t B, int64_t S, double *loss, struct error *);

/** Gradients are slope z, for the optimizer's step.  Rounding:
 * the product in double, then once to the gradients' format. */
void transformer_gradients_along(struct transformer *, uint64_t key, double slope);

#endif
