#include "ref/numeric/distance.h"
#include "ref/numeric/convert.h"
#include <math.h>

enum { DISTANCE_LANES = 8, AT_ONCE = 512 };

static const void *element(struct tensor t, int64_t i)
{
    return (const char *)t.data + (size_t)i * dtype_size(t.dtype);
}

/* Converts a few elements at a time to double, so that one loop serves all formats. */
double squared_distance(struct tensor a, struct tensor b)
{
    const int64_t count = tensor_count(a);
    double x[AT_ONCE], y[AT_ONCE] = { 0 }, lane[DISTANCE_LANES] = { 0 };
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const int64_t n = count - first < AT_ONCE ? count - first : AT_ONCE;
        convert_numbers(x, F64, element(a, first), a.dtype, n);
        if (tensor_present(b)) convert_numbers(y, F64, element(b, first), b.dtype, n);
        for (int64_t i = n; i < AT_ONCE; i++) x[i] = y[i] = 0;
        for (int64_t i = 0; i < AT_ONCE; i += DISTANCE_LANES)
            for (int l = 0; l < DISTANCE_LANES; l++) lane[l] += (x[i + l] - y[i + l]) * (x[i + l] - y[i + l]);
    }
    for (int half = DISTANCE_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

double relative_when_stored(double far, double size, int64_t count, enum dtype t)
{
    const double steps = size > 0 ? dtype_step(t) * sqrt((double)count) / size : 0;
    return (far == 0 ? 0 : far / size) + 2 * dtype_unit(t) + steps;
}
