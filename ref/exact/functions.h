/* functions.h -- logarithm, hyperbolic tangent and error function by the same operations on every processor and with
 * any C library: additions, products, quotients and roots, which IEEE 754 rounds.
 *
 * Each is computed in fp64 and rounded to fp32; the error in fp64 is below 2^-44 relative, which
 * tests/ref/test_exact_functions.c holds against the C library.  real.h gives these functions to operations with exact
 * sums.  No function can fail.
 */
#ifndef ORRERY_EXACT_FUNCTIONS_H
#define ORRERY_EXACT_FUNCTIONS_H

#include "ref/numeric/fixed_sum.h"
#include <math.h>

#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33

/* log x = e ln 2 + 2 (f + f^3/3 + f^5/5 + ..), f = (m - 1)/(m + 1), for x = m 2^e with m near 1: f^2 < 0.03. */
static inline double exact_log(double x)
{
    int e;
    if (!(x > 0) || !(x < (double)INFINITY)) return x == 0 ? -(double)INFINITY : x > 0 ? x : (double)NAN;
    double m = frexp(x, &e);
    if (m < 0x1.6a09e667f3bcdp-1) m *= 2, e--;
    const double f = (m - 1) / (m + 1), s = f * f;
    double sum = 0;
    for (int k = 12; k > 0; k--) sum = s * (sum + 1.0 / (2 * k + 1));
    return (double)e * LN2_HIGH + ((double)e * LN2_LOW + 2 * (f * sum) + 2 * f);
}

/* e^x = 2^k e^r, x = k ln 2 + r, by the Taylor series of e^r to r^13; for |x| < 700. */
static inline double exact_exp(double x)
{
    const double shift = 0x1.8p52, k = (x * 0x1.71547652b82fep+0 + shift) - shift, r = (x - k * LN2_HIGH) - k * LN2_LOW;
    double sum = 1;
    for (int n = 13; n > 0; n--) sum = 1 + r * sum / n;
    return sum * fixed_power((int)k);
}

/* tanh x = (1 - t)/(1 + t), t = e^(-2|x|); near 0 its series. */
static inline double exact_tanh(double x)
{
    const double size = fabs(x), s = x * x;
    if (size < 0x1p-6) return x * (1 - s * (1.0 / 3 - s * (2.0 / 15 - s * (17.0 / 315))));
    if (!(size < 30)) return x > 0 ? 1 : x < 0 ? -1 : x;
    const double t = exact_exp(-2 * size), y = (1 - t) / (1 + t);
    return x < 0 ? -y : y;
}

/* erfc x, x >= 0: below 1.5 it is 1 - 2/sqrt(pi) e^(-x^2) (x + 2 x^3/3 + 4 x^5/15 + ..), above a continued fraction. */
static inline double exact_erfc_above(double x)
{
    const double two_over_root_pi = 0x1.20dd750429b6dp+0, s = x * x;
    double sum = 0;
    if (x > 26) return 0;
    if (x < 1.5) {
        for (int n = 40; n > 0; n--) sum = 2 * s / (2 * n + 1) * (1 + sum);
        return 1 - two_over_root_pi * exact_exp(-s) * x * (1 + sum);
    }
    for (int n = 120; n > 0; n--) sum = (double)n / (2 * s) / (1 + sum);
    return two_over_root_pi / 2 * exact_exp(-s) / (x * (1 + sum));
}

static inline double exact_erfc(double x)
{
    if (!(x == x)) return x;
    return x < 0 ? 2 - exact_erfc_above(-x) : exact_erfc_above(x);
}

/* In fp32, by the names that REAL_FN makes of those of the C library. */
static inline float log_x32(float x) { return (float)exact_log((double)x); }
static inline float exp_x32(float x) { return x < -104 ? 0 : x > 89 ? INFINITY : (float)exact_exp((double)x); }
static inline float tanh_x32(float x) { return (float)exact_tanh((double)x); }
static inline float erfc_x32(float x) { return (float)exact_erfc((double)x); }
static inline float sqrt_x32(float x) { return sqrtf(x); }
static inline float fabs_x32(float x) { return fabsf(x); }
static inline float fmax_x32(float x, float y) { return fmaxf(x, y); }

#endif
