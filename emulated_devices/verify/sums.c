#include "emulated_devices/verify/sums.h"
#include <math.h>

void sums_add(struct sums *s, struct tensor actual, int64_t a, struct tensor truth, int64_t t, int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        const double x = tensor_get(actual, a + i), y = tensor_get(truth, t + i);
        s->difference += (x - y) * (x - y), s->actual += x * x, s->product += x * y, s->truth += y * y;
    }
    s->elements += length;
}

double sums_error(const struct sums *s, double size)
{
    if (s->elements != s->expected) return NAN;
    return s->difference == 0 ? 0 : sqrt(s->difference) / size;
}

struct scale sums_scale(const struct sums *s) { return scale_of(s->actual, s->product, s->truth); }
