/* pointwise.h -- what a network of fields computes at every point, and at every number of a spectrum, by itself.
 *
 * Fields are [N, channels, points].  Each backward function adds to the gradients that it is given, except those of
 * weights, which it sets.  serial.c and emulated_devices/weather/ call these functions; none can fail.
 *
 * Source  makani (NVIDIA): MLP, LayerScale, SpectralConv with operator_type dhconv
 */
#ifndef ORRERY_WEATHER_POINTWISE_H
#define ORRERY_WEATHER_POINTWISE_H

#include <stdint.h>

/* N fields, channels before and after, points of each. */
struct points { int64_t N, in, out, count; };

/** y = weight x + bias.  @param weight  [out, in].  @param bias  [out]. */
void points_linear(struct points, const double *weight, const double *bias, const double *x, double *y);

/** Its backward pass: d_x [N, in, count], d_weight and d_bias of these points. */
void points_linear_backward(struct points, const double *weight, const double *x, const double *d_y, double *d_x,
                            double *d_weight, double *d_bias);

/** y = x Phi(x), with the error function; n numbers. */
void points_gelu(int64_t n, const double *x, double *y);
void points_gelu_backward(int64_t n, const double *x, const double *d_y, double *d_x);

/** y = x + scale more, channel by channel: in = out.  @param scale  [in]. */
void points_residual(struct points, const double *scale, const double *x, const double *more, double *y);
void points_residual_backward(struct points, const double *scale, const double *more, const double *d_y, double *d_x,
                              double *d_more, double *d_scale);

/** Copy channels [first, first + out) of x to y. */
void points_take(struct points, int64_t first, const double *x, double *y);

/** Add y to channels [first, first + out) of x. */
void points_give(struct points, int64_t first, const double *y, double *x);

/** Add channels [first, first + out) of x to y. */
void points_back(struct points, int64_t first, const double *x, double *y);

/* A spectrum [N, channels, degrees, orders, 2]; in, out as above. */
struct spectra { int64_t N, in, out, degrees, orders; };

/** d = weight c, as complex numbers, for each degree.  @param weight  [in, out, degrees, 2]. */
void spectra_contract(struct spectra, const double *weight, const double *c, double *d);

/** Its backward pass: d_c is set, and d_weight of these orders. */
void spectra_contract_backward(struct spectra, const double *weight, const double *c, const double *d_d, double *d_c,
                               double *d_weight);

#endif
