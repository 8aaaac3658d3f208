#include "emulated_devices/check/report/sums.h"
#include <math.h>

/* The same, for the format that most are read in. */
static void add_doubles(struct sums *s, const double *actual, const double *truth, int64_t length)
{
    double difference = s->difference, square = s->actual, product = s->product, truths = s->truth;
    for (int64_t i = 0; i < length; i++) {
        const double x = actual[i], y = truth[i];
        difference += (x - y) * (x - y), square += x * x, product += x * y, truths += y * y;
    }
    s->difference = difference, s->actual = square, s->product = product, s->truth = truths;
}

void sums_add(struct sums *s, struct tensor actual, int64_t a, struct tensor truth, int64_t t, int64_t length)
{
    s->elements += length;
    if (actual.dtype == F64 && truth.dtype == F64) {
        add_doubles(s, (const double *)actual.data + a, (const double *)truth.data + t, length);
        return;
    }
    for (int64_t i = 0; i < length; i++) {
        const double x = tensor_get(actual, a + i), y = tensor_get(truth, t + i);
        s->difference += (x - y) * (x - y), s->actual += x * x, s->product += x * y, s->truth += y * y;
    }
}

double sums_error(const struct sums *s, double size)
{
    if (s->elements != s->expected) return NAN;
    return s->difference == 0 ? 0 : sqrt(s->difference) / size;
}

struct scale sums_scale(const struct sums *s) { return scale_of(s->actual, s->product, s->truth); }
