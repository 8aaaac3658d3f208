/* pointwise.c -- layers of channels, gelu, scaled sums and products of spectra, forward and backward.
 *
 * serial.c and emulated_devices/weather/ call this file.  No function here can fail.
 */
#include "ref/weather/pointwise.h"
#include <math.h>
#include <string.h>

static const double root_half = 0.70710678118654752440, over_root_two_pi = 0.39894228040143267794;

/* y[n,o,:] = bias[o] + sum over i of weight[o,i] x[n,i,:]. */
void points_linear(struct points points, const double *weight, const double *bias, const double *x, double *y)
{
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t o = 0; o < points.out; o++) {
            double *const to = y + (n * points.out + o) * points.count;
            for (int64_t p = 0; p < points.count; p++) to[p] = bias[o];
            for (int64_t i = 0; i < points.in; i++) {
                const double a = weight[o * points.in + i], *const from = x + (n * points.in + i) * points.count;
                for (int64_t p = 0; p < points.count; p++) to[p] += a * from[p];
            }
        }
}

/* d_x[n,i,:] += weight[o,i] d_y[n,o,:];  d_weight[o,i] = sum over n and points of x[n,i,:] d_y[n,o,:]. */
void points_linear_backward(struct points points, const double *weight, const double *x, const double *d_y, double *d_x,
                            double *d_weight, double *d_bias)
{
    memset(d_weight, 0, (size_t)(points.in * points.out) * sizeof *d_weight);
    memset(d_bias, 0, (size_t)points.out * sizeof *d_bias);
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t o = 0; o < points.out; o++) {
            const double *const d = d_y + (n * points.out + o) * points.count;
            for (int64_t p = 0; p < points.count; p++) d_bias[o] += d[p];
            for (int64_t i = 0; i < points.in; i++) {
                const int64_t at = (n * points.in + i) * points.count;
                double sum = 0;
                for (int64_t p = 0; p < points.count; p++) {
                    d_x[at + p] += weight[o * points.in + i] * d[p];
                    sum += x[at + p] * d[p];
                }
                d_weight[o * points.in + i] += sum;
            }
        }
}

void points_gelu(int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = 0.5 * x[i] * (1 + erf(x[i] * root_half));
}

/* The slope of x Phi(x) is Phi(x) + x phi(x). */
void points_gelu_backward(int64_t n, const double *x, const double *d_y, double *d_x)
{
    for (int64_t i = 0; i < n; i++)
        d_x[i] += d_y[i] * (0.5 * (1 + erf(x[i] * root_half)) + x[i] * over_root_two_pi * exp(-0.5 * x[i] * x[i]));
}

void points_residual(struct points points, const double *scale, const double *x, const double *more, double *y)
{
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t c = 0; c < points.in; c++, x += points.count, more += points.count, y += points.count)
            for (int64_t p = 0; p < points.count; p++) y[p] = x[p] + scale[c] * more[p];
}

/* d_x += d_y;  d_more += scale d_y;  d_scale = sum over n and points of more d_y. */
void points_residual_backward(struct points points, const double *scale, const double *more, const double *d_y,
                              double *d_x, double *d_more, double *d_scale)
{
    memset(d_scale, 0, (size_t)points.in * sizeof *d_scale);
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t c = 0; c < points.in; c++)
            for (int64_t p = 0, at = (n * points.in + c) * points.count; p < points.count; p++, at++) {
                d_x[at] += d_y[at];
                d_more[at] += scale[c] * d_y[at];
                d_scale[c] += more[at] * d_y[at];
            }
}

void points_take(struct points points, int64_t first, const double *x, double *y)
{
    const int64_t some = points.out * points.count;
    for (int64_t n = 0; n < points.N; n++)
        memcpy(y + n * some, x + (n * points.in + first) * points.count, (size_t)some * sizeof *y);
}

void points_give(struct points points, int64_t first, const double *y, double *x)
{
    const int64_t some = points.out * points.count;
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t i = 0; i < some; i++) x[(n * points.in + first) * points.count + i] += y[n * some + i];
}

void points_back(struct points points, int64_t first, const double *x, double *y)
{
    const int64_t some = points.out * points.count;
    for (int64_t n = 0; n < points.N; n++)
        for (int64_t i = 0; i < some; i++) y[n * some + i] += x[(n * points.in + first) * points.count + i];
}

/* ---- spectra ----------------------------------------------------------------------------------------------------- */

/* d[n,o,l,m] = sum over i of c[n,i,l,m] weight[i,o,l]. */
void spectra_contract(struct spectra spectra, const double *weight, const double *c, double *d)
{
    const int64_t row = 2 * spectra.orders, block = spectra.degrees * row;
    memset(d, 0, (size_t)(spectra.N * spectra.out * block) * sizeof *d);
    for (int64_t n = 0; n < spectra.N; n++)
        for (int64_t i = 0; i < spectra.in; i++)
            for (int64_t o = 0; o < spectra.out; o++)
                for (int64_t l = 0; l < spectra.degrees; l++) {
                    const double *const w = weight + 2 * ((i * spectra.out + o) * spectra.degrees + l);
                    const double *const from = c + (n * spectra.in + i) * block + l * row;
                    double *const to = d + (n * spectra.out + o) * block + l * row;
                    for (int64_t m = 0; m < row; m += 2) {
                        to[m] += from[m] * w[0] - from[m + 1] * w[1];
                        to[m + 1] += from[m] * w[1] + from[m + 1] * w[0];
                    }
                }
}

/* With real numbers as coordinates the slope of a product is the conjugate of the factor beside. */
void spectra_contract_backward(struct spectra spectra, const double *weight, const double *c, const double *d_d,
                               double *d_c, double *d_weight)
{
    const int64_t row = 2 * spectra.orders, block = spectra.degrees * row;
    memset(d_c, 0, (size_t)(spectra.N * spectra.in * block) * sizeof *d_c);
    memset(d_weight, 0, (size_t)(2 * spectra.in * spectra.out * spectra.degrees) * sizeof *d_weight);
    for (int64_t n = 0; n < spectra.N; n++)
        for (int64_t i = 0; i < spectra.in; i++)
            for (int64_t o = 0; o < spectra.out; o++)
                for (int64_t l = 0; l < spectra.degrees; l++) {
                    const int64_t at = 2 * ((i * spectra.out + o) * spectra.degrees + l);
                    const double *const w = weight + at, *const x = c + (n * spectra.in + i) * block + l * row,
                                 *const d = d_d + (n * spectra.out + o) * block + l * row;
                    double *const d_x = d_c + (n * spectra.in + i) * block + l * row;
                    for (int64_t m = 0; m < row; m += 2) {
                        d_x[m] += d[m] * w[0] + d[m + 1] * w[1];
                        d_x[m + 1] += d[m + 1] * w[0] - d[m] * w[1];
                        d_weight[at] += x[m] * d[m] + x[m + 1] * d[m + 1];
                        d_weight[at + 1] += x[m] * d[m + 1] - x[m + 1] * d[m];
                    }
                }
}
