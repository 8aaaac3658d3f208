/* harmonics.c -- spherical harmonic transforms: along rows by Fourier sums, along columns by Legendre sums.
 *
 * schemes/spatial/ calls the single steps on the orders or rows that a device has; tests call the whole transforms.
 * Errors are ERR_USAGE and ERR_MEMORY.
 */
#include "ref/sphere/harmonics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A table of one turn serves every order, since angles repeat. */
static void longitudes(struct harmonics *harmonics)
{
    for (int64_t j = 0; j < harmonics->nlon; j++) {
        harmonics->cosine[j] = cos(2 * pi * (double)j / (double)harmonics->nlon);
        harmonics->sine[j] = 2 * j % harmonics->nlon == 0 ? 0 : sin(2 * pi * (double)j / (double)harmonics->nlon);
    }
}

/* The values of P_l^m at all latitudes lie side by side. */
static double *harmonics_of(const struct harmonics *harmonics, int64_t m, int64_t l)
{
    return harmonics->legendre + (m * harmonics->degrees + l) * harmonics->nlat;
}

/* P_l^m at one latitude for all degrees, upwards in l, from P_m^m. */
static void legendre_of_order(struct harmonics *harmonics, int64_t m, int64_t k, double x)
{
    double p = 1 / sqrt(4 * pi), before = 0;
    /* P_m^m follows from P_0^0 by a product of square roots, each with a change of sign (Condon-Shortley). */
    for (int64_t i = 1; i <= m; i++) p *= -sqrt((double)(2 * i + 1) * (1 + x) * (1 - x) / 2 / (double)i);
    for (int64_t l = m; l < harmonics->degrees; l++) {
        harmonics_of(harmonics, m, l)[k] = p;
        const double L = (double)l + 1, M = (double)m;
        /* P_(l+1) = a x P_l - b P_(l-1), normalised to 1 over the sphere. */
        const double a = sqrt((2 * L - 1) / (L - M) * (2 * L + 1) / (L + M));
        const double b = l == m ? 0 : sqrt((L + M - 1) / (L - M) * (2 * L + 1) / (2 * L - 3) * (L - M - 1) / (L + M));
        const double next = a * x * p - b * before;
        before = p, p = next;
    }
}

/* The number of degrees is cut to what rows and longitudes can tell apart. */
enum error_code harmonics_open(struct harmonics *harmonics, enum sphere_grid grid, int64_t nlat, int64_t nlon,
                               int64_t degrees, struct error *err)
{
    *harmonics = (struct harmonics){ .nlat = nlat, .nlon = nlon, .degrees = degrees };
    if (nlon < 1)
        return fail(err, ERR_USAGE, "a grid of the sphere with %lld longitudes: must have 1", (long long)nlon);
    if (degrees == 0) harmonics->degrees = grid == EQUIANGULAR ? (nlat + 1) / 2 : nlat;
    if (harmonics->degrees > nlon / 2 + 1) harmonics->degrees = nlon / 2 + 1;
    if (harmonics->degrees < 1) return fail(err, ERR_USAGE, "%lld degrees of harmonics: must be 1", (long long)degrees);
    double *const x = calloc((size_t)(nlat < 2 ? 2 : nlat), sizeof *x);
    harmonics->weight = calloc((size_t)(nlat < 2 ? 2 : nlat), sizeof *x);
    harmonics->cosine = calloc((size_t)nlon, sizeof *x), harmonics->sine = calloc((size_t)nlon, sizeof *x);
    harmonics->legendre = calloc((size_t)(harmonics->degrees * harmonics->degrees * nlat + 1), sizeof *x);
    enum error_code e = x && harmonics->weight && harmonics->cosine && harmonics->sine && harmonics->legendre
                            ? OK
                            : fail(err, ERR_MEMORY, "no memory for %lld degrees", (long long)harmonics->degrees);
    if (!e) e = sphere_rows(grid, nlat, x, harmonics->weight, err);
    if (!e) longitudes(harmonics);
    for (int64_t m = 0; m < harmonics->degrees && !e; m++)
        for (int64_t k = 0; k < nlat; k++) legendre_of_order(harmonics, m, k, x[k]);
    free(x);
    if (e) harmonics_close(harmonics);
    return e;
}

void harmonics_close(struct harmonics *harmonics)
{
    free(harmonics->weight), free(harmonics->cosine), free(harmonics->sine), free(harmonics->legendre);
    *harmonics = (struct harmonics){ 0 };
}

/* ---- along rows: a discrete Fourier transform, term by term ------------------------------------------------------ */

/* The factor of an order in an analysis, or in a synthesis, where negative orders are not stored. */
static double factor(const struct harmonics *harmonics, enum transform transform, int64_t m)
{
    if (transform == ANALYSIS) return 2 * pi / (double)harmonics->nlon;
    return m == 0 || 2 * m == harmonics->nlon ? 1 : 2;
}

/* modes [rows, degrees] of complex numbers from x [rows, nlon]. */
void harmonics_orders(const struct harmonics *harmonics, enum transform transform, int64_t rows, const double *x,
                      double *modes)
{
    for (int64_t r = 0; r < rows; r++, x += harmonics->nlon)
        for (int64_t m = 0; m < harmonics->degrees; m++) {
            double re = 0, im = 0;
            for (int64_t j = 0; j < harmonics->nlon; j++) {
                /* modes[r,m] = factor sum over j of x[r,j] exp(-2 pi i m j / nlon). */
                re += x[j] * harmonics->cosine[m * j % harmonics->nlon];
                im -= x[j] * harmonics->sine[m * j % harmonics->nlon];
            }
            *modes++ = factor(harmonics, transform, m) * re;
            *modes++ = factor(harmonics, transform, m) * im;
        }
}

void harmonics_longitudes(const struct harmonics *harmonics, enum transform transform, int64_t rows,
                          const double *modes, double *x)
{
    for (int64_t r = 0; r < rows; r++, modes += 2 * harmonics->degrees)
        for (int64_t j = 0; j < harmonics->nlon; j++) {
            double sum = 0;
            for (int64_t m = 0; m < harmonics->degrees; m++)
                /* x[r,j] = sum over m of factor Re(modes[r,m] exp(2 pi i m j / nlon)). */
                sum += factor(harmonics, transform, m) * (modes[2 * m] * harmonics->cosine[m * j % harmonics->nlon] -
                                                          modes[2 * m + 1] * harmonics->sine[m * j % harmonics->nlon]);
            *x++ = sum;
        }
}

/* ---- along columns: the Legendre transform ----------------------------------------------------------------------- */

/* Only an analysis integrates over latitudes. */
static double harmonics_weight(const struct harmonics *harmonics, enum transform transform, int64_t k)
{
    return transform == ANALYSIS ? harmonics->weight[k] : 1;
}

/* c [n, degrees, orders] from modes [n, nlat, orders], both of complex numbers. */
void harmonics_degrees(const struct harmonics *harmonics, enum transform transform, struct range orders, int64_t n,
                       const double *modes, double *c)
{
    const int64_t pitch = 2 * orders.count;
    for (int64_t i = 0; i < n; i++, modes += harmonics->nlat * pitch)
        for (int64_t l = 0; l < harmonics->degrees; l++, c += pitch)
            for (int64_t m = 0; m < pitch; m++) {
                /* c[i,l,m] = sum over latitudes k of P_l^m[k] weight[k] modes[i,k,m]; real and imaginary parts
                 * alike. */
                const double *const p = harmonics_of(harmonics, orders.first + m / 2, l);
                double sum = 0;
                for (int64_t k = 0; k < harmonics->nlat; k++)
                    sum += modes[k * pitch + m] * (p[k] * harmonics_weight(harmonics, transform, k));
                c[m] = sum;
            }
}

/* modes [n, nlat, orders] from c [n, degrees, orders], both of complex numbers. */
void harmonics_latitudes(const struct harmonics *harmonics, enum transform transform, struct range orders, int64_t n,
                         const double *c, double *modes)
{
    const int64_t pitch = 2 * orders.count;
    for (int64_t i = 0; i < n; i++, c += harmonics->degrees * pitch)
        for (int64_t k = 0; k < harmonics->nlat; k++, modes += pitch)
            for (int64_t m = 0; m < pitch; m++) {
                /* modes[i,k,m] = sum over degrees l of P_l^m[k] weight[k] c[i,l,m]; elements with l < m are 0 in the
                 * table. */
                double sum = 0;
                for (int64_t l = 0; l < harmonics->degrees; l++)
                    sum += c[l * pitch + m] * (harmonics_of(harmonics, orders.first + m / 2, l)[k]
                                               * harmonics_weight(harmonics, transform, k));
                modes[m] = sum;
            }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* Room for the orders of all rows of n fields; NULL comes with an error. */
static double *modes_of(const struct harmonics *harmonics, int64_t n, struct error *err)
{
    double *const modes = calloc((size_t)(n * harmonics->nlat * harmonics->degrees * 2 + 1), sizeof *modes);
    if (modes == NULL) fail(err, ERR_MEMORY, "no memory for the orders of %lld fields", (long long)n);
    return modes;
}

enum error_code harmonics_to_spectrum(const struct harmonics *harmonics, enum transform transform, int64_t n,
                                      const double *x, double *c, struct error *err)
{
    double *const modes = modes_of(harmonics, n, err);
    if (modes == NULL) return ERR_MEMORY;
    harmonics_orders(harmonics, transform, n * harmonics->nlat, x, modes);
    harmonics_degrees(harmonics, transform, (struct range){ 0, harmonics->degrees }, n, modes, c);
    free(modes);
    return OK;
}

enum error_code harmonics_to_grid(const struct harmonics *harmonics, enum transform transform, int64_t n,
                                  const double *c, double *x, struct error *err)
{
    double *const modes = modes_of(harmonics, n, err);
    if (modes == NULL) return ERR_MEMORY;
    harmonics_latitudes(harmonics, transform, (struct range){ 0, harmonics->degrees }, n, c, modes);
    harmonics_longitudes(harmonics, transform, n * harmonics->nlat, modes, x);
    free(modes);
    return OK;
}
