/* kept.c -- decides from many elements whether a program goes on from rounded numbers.  steps.c adds every element
 * of a step whose numbers are 16-bit ones, and asks at the end.  There is nothing to free. */
#include "emulated_devices/check/recompute/kept.h"
#include "ref/numeric/convert.h"
#include <math.h>

/* Fewer expected misses tell nothing.  A part of the elements misses where a program rounds inside the step, too. */
static const double LEAST = 40, MISSED = 0.15;
/* Both are parts of a spacing.  What has not moved so far says little of where it was; nearer to the middle of two
 * numbers any sum decides. */
static const double MOVED = 0.25, UNDECIDED = 0.01;

/* This is the number of the format that is nearest to x. */
static double kept_rounded(enum dtype format, double x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, format, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

/* Neighbours of the format have this distance near x; subnormal numbers have a smallest step. */
static double spacing(enum dtype format, double x)
{
    int exponent;
    frexp(x, &exponent);                                /* |x| in [2^(exponent-1), 2^exponent) */
    return fmax(ldexp(dtype_unit(format), exponent), dtype_step(format));
}

/* This is the part of [at - half, at + half] that is outside [-1/2, 1/2].  The part says how likely another number is
 * nearest. */
static double outside(double at, double half)
{
    const double above = fmax(0, fabs(at) + half - 0.5), below = fmax(0, half - fabs(at) - 0.5);
    return half > 0 ? fmin(1, (fmin(above, 2 * half) + below) / (2 * half)) : 0;
}

/* Whether this is the first element that begins with this number.  Absolute values count, so there are 2^15 bits. */
static bool is_news(struct kept *kept, enum dtype format, double old)
{
    uint16_t bits;
    convert_numbers(&bits, format, &old, F64, 1);
    uint64_t *const word = &kept->seen[(bits & 0x7fff) / 64], bit = (uint64_t)1 << (bits % 64);
    const bool first = (*word & bit) == 0;
    *word |= bit;
    return first;
}

/* An element counts only if the step moved it and no other rounding decides. */
void kept_add(struct kept *kept, enum dtype format, double old, double left, double rest, double have)
{
    const double want = left + rest, near = kept_rounded(format, want), one = spacing(format, want),
                 at = (want - near) / one;
    if (old == 0 || fabs(want - old) < MOVED * one || fabs(at) > 0.5 - UNDECIDED) return;
    if (!is_news(kept, format, old)) return;
    /* The old number was anywhere within half a spacing; `half` is what the step makes of that. */
    kept->expected += outside(at, fabs(left / old) * spacing(format, old) / 2 / one);
    kept->missed[KEPT_ONCE] += have != near;
    kept->missed[KEPT_TWICE] += have != kept_rounded(format, kept_rounded(format, left) + rest);
}

bool kept_is_clear(const struct kept *kept)
{
    const double missed = fmin(kept->missed[KEPT_ONCE], kept->missed[KEPT_TWICE]);
    return !kept->wide && kept->expected >= LEAST && missed <= MISSED * kept->expected;
}
