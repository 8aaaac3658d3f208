/* measure.c -- seconds of the clock and of this process, and medians.
 *
 * Benchmarks and reports of time call this file. measure_median_of takes at most 1000 numbers, without a check.
 * Files of bench/, cli/, launch/, run/ and other rooms call these functions.  No function returns an error code.
 */
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

double measure_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double measure_processor(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The array is sorted in place; n is at least 1. */
double measure_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* The caller's array keeps its order. */
double measure_median_of(const double *x, int n)
{
    double copy[1000];
    memcpy(copy, x, (size_t)n * sizeof *x);
    return measure_median(copy, n);
}
