/* distance.c -- squared distances of tensors, in fp64 and in a fixed order, and relative distances.
 *
 * Golden files, verify/ and check/report/ compare with these functions.  No function here can fail.
 */
#include "ref/numeric/distance.h"
#include "ref/numeric/convert.h"
#include <math.h>

enum { DISTANCE_LANES = 8, AT_ONCE = 512, PARTS = 64, PARALLEL_FROM = 1 << 15 };

static const void *distance_element(struct tensor t, int64_t i)
{
    return (const char *)t.data + (size_t)i * dtype_size(t.dtype);
}

/* A quotient is rounded to fp32 if the tensor's wide format is fp32. */
static void distance_divide(double *x, int64_t n, double divisor, bool single)
{
    for (int64_t i = 0; i < n; i++) x[i] /= divisor;
    for (int64_t i = 0; i < n && single; i++) x[i] = (float)x[i];
}

/* Converts a few elements at a time to double, so that one loop serves all formats. */
static double of_elements(struct tensor a, double divisor, struct tensor b, int64_t from, int64_t to)
{
    const bool single = dtype_wide(a.dtype) == F32;
    double x[AT_ONCE], y[AT_ONCE], lane[DISTANCE_LANES] = { 0 };
    for (int64_t first = from; first < to; first += AT_ONCE) {
        /* Pieces of AT_ONCE elements are widened to fp64 and padded with zeros to whole lanes. */
        const int64_t n = to - first < AT_ONCE ? to - first : AT_ONCE, of_b = tensor_present(b) ? n : 0,
                      whole = (n + DISTANCE_LANES - 1) / DISTANCE_LANES * DISTANCE_LANES;
        convert_numbers(x, F64, distance_element(a, first), a.dtype, n);
        if (of_b > 0) convert_numbers(y, F64, distance_element(b, first), b.dtype, n);
        if (divisor != 1) distance_divide(x, n, divisor, single);
        for (int64_t i = n; i < whole; i++) x[i] = 0;
        for (int64_t i = of_b; i < whole; i++) y[i] = 0;
        for (int64_t i = 0; i < whole; i += DISTANCE_LANES)
            /* Eight partial sums of (x - y)^2: the order of additions is fixed, and compilers can vectorise. */
            for (int l = 0; l < DISTANCE_LANES; l++) lane[l] += (x[i + l] - y[i + l]) * (x[i + l] - y[i + l]);
    }
    /* The lanes are added as a binary tree. */
    for (int half = DISTANCE_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

double squared_distance(struct tensor a, struct tensor b) { return of_elements(a, 1, b, 0, tensor_count(a)); }

double squared_distance_of_quotient(struct tensor a, double divisor, struct tensor b)
{
    const int64_t count = tensor_count(a), chunks = (count + AT_ONCE - 1) / AT_ONCE,
                  each = (chunks + PARTS - 1) / PARTS * AT_ONCE;
    double part[PARTS], sum = 0;
    #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
    for (int p = 0; p < PARTS; p++) {
        /* Part p of PARTS has the same elements for any number of threads, so the sum has the same bits. */
        const int64_t from = p * each, to = from + each;
        part[p] = from < count ? of_elements(a, divisor, b, from, to < count ? to : count) : 0;
    }
    for (int p = 0; p < PARTS; p++) sum += part[p];
    return sum;
}

/* The rounding of stored numbers is added, so that a bound holds for a run that rounds otherwise. */
double relative_when_stored(double far, double size, int64_t count, enum dtype dtype)
{
    const double steps = size > 0 ? dtype_step(dtype) * sqrt((double)count) / size : 0;
    return (far == 0 ? 0 : far / size) + 2 * dtype_unit(dtype) + steps;
}

/* A tensor of zeros has no relative distance, so its absolute one counts. */
double relative_or_absolute(double far, double size, int64_t count, enum dtype dtype)
{
    if (size != 0) return relative_when_stored(far, size, count, dtype);
    return far == 0 ? 0 : far + dtype_step(dtype) * sqrt((double)count);
}
