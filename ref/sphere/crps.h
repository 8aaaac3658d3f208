/* crps.h -- the continuous ranked probability score of an ensemble, as a loss.
 *
 * Source  makani (NVIDIA), CRPSLoss of type "skillspread", as FourCastNet 3 (arXiv:2507.12144) trains with it
 *
 *     at a point      1/E sum_e |f_e - o|  -  (E - 1 + alpha) / (2 E^2 (E - 1)) sum over e and g of |f_e - f_g|
 *     of a channel    the sum of this over all points, times their weights
 *
 * alpha 1 is the fair score, 0 that of the ensemble as a distribution.  Of one member it is |f - o|.  A point whose
 * observation is NaN counts as 0.
 *
 * schemes/spatial/ scores the points of a device.  No function here can fail.
 */
#ifndef ORRERY_SPHERE_CRPS_H
#define ORRERY_SPHERE_CRPS_H

#include <stdint.h>

/* Shapes of a score, letters E = members above; alpha between the ensemble's and the fair score. */
struct crps { int64_t members, channels, points; double alpha; };

/** loss [channels] from forecasts [members, channels, points], observations [channels, points] and weights [points]. */
void crps_forward(struct crps, const double *forecast, const double *observation, const double *weight, double *loss);

/** d_forecast from d_loss [channels].  At a kink the gradient of |x| is 0; equal members are ranked by their number. */
void crps_backward(struct crps, const double *forecast, const double *observation, const double *weight,
                   const double *d_loss, double *d_forecast);

#endif
