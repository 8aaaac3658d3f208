/* grid.c -- latitudes of a grid, and their quadrature weights.
 *
 * convolution.c and harmonics.c call sphere_rows.  The function returns ERR_USAGE for fewer than two rows.
 */
#include "ref/sphere/grid.h"
#include <math.h>

static const double pi = 3.14159265358979323846;

/* Rows at equal angles, both poles included. */
static void clenshaw_curtis(int64_t nlat, double cosine[], double weight[])
{
    const int64_t n = nlat - 1;
    for (int64_t k = 0; k < nlat; k++) {
        /* Weights of the cosine series that interpolates at equal angles; they sum to 2. */
        double sum = 1;
        for (int64_t j = 1; 2 * j <= n; j++)
            sum -= (2 * j == n ? 1.0 : 2.0) / (double)(4 * j * j - 1) * cos(2 * pi * (double)(j * k % n) / (double)n);
        cosine[k] = cos(pi * (double)k / (double)n);
        weight[k] = (k == 0 || k == n ? 1.0 : 2.0) / (double)n * sum;
    }
}

/* Rows at the roots of P_n, which Newton's iteration finds one by one. */
static void legendre_gauss(int64_t n, double cosine[], double weight[])
{
    for (int64_t k = 0; k < n; k++) {
        /* The first guess is near enough for Newton's iteration to find this root. */
        double x = cos(pi * ((double)k + 0.75) / ((double)n + 0.5)), slope = 1;
        for (int step = 0; step < 20; step++) {
            double p = x, before = 1;
            for (int64_t l = 2; l <= n; l++) {
                /* Three terms: l P_l = (2l - 1) x P_(l-1) - (l - 1) P_(l-2). */
                const double next = ((double)(2 * l - 1) * x * p - (double)(l - 1) * before) / (double)l;
                before = p, p = next;
            }
            slope = (double)n * (before - x * p) / (1 - x * x);
            x -= p / slope;
        }
        cosine[k] = x;
        weight[k] = 2 / ((1 - x * x) * slope * slope);
    }
}

enum error_code sphere_rows(enum sphere_grid grid, int64_t nlat, double cosine[], double weight[], struct error *err)
{
    if (nlat < 2) return fail(err, ERR_USAGE, "a grid of the sphere with %lld rows: must have 2", (long long)nlat);
    (grid == EQUIANGULAR ? clenshaw_curtis : legendre_gauss)(nlat, cosine, weight);
    return OK;
}
