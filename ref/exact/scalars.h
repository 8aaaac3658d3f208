/* scalars.h -- sine, cosine, power, exponential and logarithm of single numbers in fp64, by the same operations on
 * every processor and with any C library.
 *
 * Files use them for numbers that a run computes once for a table or a step: angles and frequencies of rotary tables
 * (ref/model/rotary.c), corrections of optimizers (ref/optim), rates (ref/optim/rates.c) and drawn lengths (ref/io).
 * Every step rounds once in fp64; no product is fused with a sum; docs/checking/exact.md has the steps.  The error is
 * below 0.51 units of the last place of a power, exponential or logarithm, and below 0.8 of a sine or a cosine:
 * tests/ref/test_exact_functions.c.
 * Source    T. J. Dekker, "A floating-point technique for extending the available precision", doi:10.1007/BF01397083
 * No function can fail.
 */
#ifndef ORRERY_EXACT_SCALARS_H
#define ORRERY_EXACT_SCALARS_H

/** Sine and cosine of an angle in radians.  @param x  below 2^28 in size; farther angles lose their last bits. */
void scalar_turn(double x, double *sine, double *cosine);

/** The cosine alone, as scalar_turn has it. */
double scalar_cosine(double x);

/** base^exponent of a base that is not negative; NaN of a negative one. */
double scalar_power(double base, double exponent);

/** e^x. */
double scalar_exp(double x);

/** The natural logarithm; -infinity of 0, NaN of a negative number. */
double scalar_log(double x);

#endif
