/* sums.c -- adds up what error and factor of a tensor are computed from.  checker.c, verify/reference/ and the
 * probes use it.  Sums of several calls add up. */
#include "emulated_devices/check/report/sums.h"
#include <math.h>

/* This does the same as the loop of sums_add, for the format that most tensors are read in: plain arrays become
 * vector instructions. */
static void add_doubles(struct sums *sums, const double *actual, const double *truth, int64_t length)
{
    double difference = sums->difference, square = sums->actual, product = sums->product, truths = sums->truth;
    for (int64_t i = 0; i < length; i++) {
        const double x = actual[i], y = truth[i];
        difference += (x - y) * (x - y), square += x * x, product += x * y, truths += y * y;
    }
    sums->difference = difference, sums->actual = square, sums->product = product, sums->truth = truths;
}

/* The difference of two elements.  That of sums that do not round is exact: a last bit is seen beside any number. */
static double sums_apart(struct tensor x, int64_t i, struct tensor y, int64_t k)
{
    if (x.dtype != EXACT || y.dtype != EXACT) return tensor_get(x, i) - tensor_get(y, k);
    const fixed_sum a = fixed_at(x.data, i), b = fixed_at(y.data, k);
    return fixed_to_double(b == FIXED_NONE ? FIXED_NONE : fixed_add(a, -b));
}

int sums_last_place(enum dtype dtype, double x)
{
    const int least = ilogb(dtype_step(dtype));
    if (dtype == EXACT || x == 0 || !isfinite(x)) return least;
    const int place = ilogb(x) + ilogb(dtype_unit(dtype)) + 1;
    return place > least ? place : least;
}

/* Describe the first element that differs, if there is one. */
static void note_first(struct sums *sums, struct tensor actual, int64_t a, struct tensor truth, int64_t t,
                       int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        const double apart = sums_apart(actual, a + i, truth, t + i), y = tensor_get(truth, t + i);
        if (apart == 0) continue;
        const int64_t cols = truth.ndim > 1 && tensor_cols(truth) > 0 ? tensor_cols(truth) : 1;
        const int unit = sums_last_place(truth.dtype, y);
        sums->first = (struct apart_element){ true, (t + i) / cols, (t + i) % cols, tensor_get(actual, a + i), y,
                                              ldexp(apart, -unit), unit };
        return;
    }
}

/* Add up the elements of one run. */
static void add_elements(struct sums *sums, struct tensor actual, int64_t a, struct tensor truth, int64_t t,
                         int64_t length)
{
    if (actual.dtype == F64 && truth.dtype == F64) {
        add_doubles(sums, (const double *)actual.data + a, (const double *)truth.data + t, length);
        return;
    }
    for (int64_t i = 0; i < length; i++) {
        const double x = tensor_get(actual, a + i), y = tensor_get(truth, t + i),
                     d = sums_apart(actual, a + i, truth, t + i);
        sums->difference += d * d, sums->actual += x * x, sums->product += x * y, sums->truth += y * y;
    }
}

void sums_add(struct sums *sums, struct tensor actual, int64_t a, struct tensor truth, int64_t t, int64_t length)
{
    const double before = sums->difference;
    sums->elements += length;
    add_elements(sums, actual, a, truth, t, length);
    if (!sums->first.there && sums->difference != before) note_first(sums, actual, a, truth, t, length);
}

double sums_error(const struct sums *sums, double size)
{
    /* A run that is missing would make the error look small, so the count decides first. */
    if (sums->elements != sums->expected) return NAN;
    return sums->difference == 0 ? 0 : sqrt(sums->difference) / size;
}

struct scale sums_scale(const struct sums *sums) { return scale_of(sums->actual, sums->product, sums->truth); }
