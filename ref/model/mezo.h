/* mezo.h -- training with forward passes only: the loss at two points along a random direction, which is not stored.
 *
 *     z       a number for each element of each parameter, drawn anew in every step
 *     l+, l-  the loss at w + eps z and at w - eps z, of the same batch and with the same dropout
 *     slope   (l+ - l-) / (2 eps): the derivative of the loss along z, but for O(eps^2)
 *     w       = w - lr slope z: a step of SGD whose gradient is slope z
 *
 * z is not stored: element i of a parameter is a pure function of (seed, step, the parameter's name, i), from the
 * counter-based generator of the initial weights (random_normal in philox.h: mean 0, variance 1, |z| < 4.9).  A device
 * draws z for its shard whenever it needs it; all devices get the same numbers.
 *
 * Moved weights are always computed from the stored ones, w + eps z and w - eps z.  Adding eps z, subtracting 2 eps z
 * and adding eps z again would leave rounding errors in the weights, which would differ between a device that computes
 * both losses and one that computes only one.
 *
 * The authors' code (princeton-nlp/MeZO, large_models/trainer.py) computes both losses without dropout; here
 * --dropout 0 does that.
 *
 * Source  S. Malladi et al., "Fine-tuning language models with just forward passes", arXiv:2305.17333, algorithm 1;
 *         two-sided differences along a random direction: J. Spall, doi:10.1109/9.119632
 * Called  device/drawn.c, model/zeroth.c and verify/reference/reference_zeroth.c call these functions.
 */
#ifndef ORRERY_MEZO_H
#define ORRERY_MEZO_H

#include "ref/model/transformer.h"

/** The random key of the direction of a step. */
uint64_t mezo_key(uint64_t seed, int64_t step);

/** z of elements first .. first + n - 1 of a parameter. */
void mezo_draw(const struct param_spec *, uint64_t key, int64_t first, int64_t n, double *z);

/** w += along z for elements first .. first + n - 1; w points to the first of them.
 *  Rounding: the sum in double, then once to the format. */
void mezo_move(const struct param_spec *, uint64_t key, double along, int64_t first, int64_t n, enum dtype, void *w);

/** The slope, from the losses { l+, l- }. */
static inline double mezo_slope(const double loss[2], double eps) { return (loss[0] - loss[1]) / (2 * eps); }

/**
 * The loss at w + along z.  Activations are those of this pass afterwards; the weights do not change.
 * @return as transformer_forward.
 */
enum error_code transformer_loss_along(struct transformer *, uint64_t key, double along, const int32_t *ids,
                                       const int32_t *labels, int64_t B, int64_t S, double *loss, struct error *);

/** Set the gradients to slope z, for the optimizer's step.
 *  Rounding: the product in double, then once to the gradients' format. */
void transformer_gradients_along(struct transformer *, uint64_t key, double slope);

#endif
