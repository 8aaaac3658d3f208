#include "ref/sphere/convolution.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* ---- psi --------------------------------------------------------------------------------------------------------- */

/* Angle and direction of a point, seen from point (t, 0): a rotation about the y axis brings the latter to the pole. */
struct seen { double angle, x, y; };            /* x, y: of the unit vector */

static struct seen look(double t, double i, double longitude)
{
    const double x = cos(t) * cos(longitude) * sin(i) - cos(i) * sin(t), y = sin(longitude) * sin(i),
                 z = cos(longitude) * sin(t) * sin(i) + cos(t) * cos(i), flat = sqrt(x * x + y * y);
    return (struct seen){ atan2(flat, z), flat > 0 ? x / flat : 1, flat > 0 ? y / flat : 0 };
}

/* A sine for odd indices, a cosine for even ones, of frequency ceil(index / 2). */
static double wave(int index, double at)
{
    const double angle = (double)((index + 1) / 2) * pi * at;
    return index % 2 ? sin(angle) : cos(angle);
}

/* The basis "harmonic": a Hann window times waves along two axes.  Its norm cancels in normalise. */
static void basis(double psi[], int radial, int angular, struct seen s, double cutoff)
{
    const double r = s.angle / cutoff, window = cos(0.5 * pi * r) * cos(0.5 * pi * r);
    for (int k = 0; k < radial * angular; k++)
        psi[k] = window * wave(k % angular, r * s.y) * wave(k / angular, r * s.x);
}

/* Points of all rows; psi is only counted while f->psi is NULL. */
static int64_t find_points(struct filter *f, const double cosine[], int radial, int angular, double cutoff)
{
    int64_t found = 0;
    for (int64_t t = 0; t < f->nlat; t++) {
        f->first[t] = found;
        for (int64_t i = 0; i < f->nlat; i++)
            for (int64_t j = 0; j < f->nlon; j++) {
                const struct seen s = look(acos(cosine[t]), acos(cosine[i]), 2 * pi * (double)j / (double)f->nlon);
                if (s.angle > cutoff) continue;
                /* In the second call the arrays exist, and the point's place and its K values are stored. */
                if (f->psi) {
                    f->row[found] = (int32_t)i, f->column[found] = (int32_t)j;
                    basis(f->psi + found * f->K, radial, angular, s, cutoff);
                    if (llabs(t - i) > f->reach) f->reach = llabs(t - i);
                }
                found++;
            }
    }
    return f->first[f->nlat] = found;
}

/* The mode "mean": the integral of |psi_k|, in the mean over output rows, becomes 1.  Then the quadrature is put in;
 * over the whole sphere its weights sum to 1. */
static void normalise(struct filter *f, const double weight[])
{
    for (int64_t k = 0; k < f->K; k++) {
        double scale = 0;
        for (int64_t e = 0; e < f->first[f->nlat]; e++)
            scale += fabs(f->psi[e * f->K + k]) * weight[f->row[e]] / (double)f->nlon / 2;
        scale = fmax(scale / (double)f->nlat, 1e-9);
        for (int64_t e = 0; e < f->first[f->nlat]; e++)
            f->psi[e * f->K + k] *= weight[f->row[e]] / (double)f->nlon / 2 / scale;
    }
}

enum error_code filter_open(struct filter *f, enum sphere_grid grid, int64_t nlat, int64_t nlon, int radial,
                            int angular, double cutoff, struct error *err)
{
    *f = (struct filter){ .nlat = nlat, .nlon = nlon, .K = (int64_t)radial * angular };
    if (nlon < 1 || radial < 1 || angular < 1 || !(cutoff > 0))
        return fail(err, ERR_USAGE, "a filter of %d x %d functions, cutoff %g: must be positive", radial, angular,
                    cutoff);
    const size_t rows = (size_t)(nlat < 2 ? 2 : nlat);
    double *const cosine = calloc(2 * rows, sizeof *cosine);
    f->first = calloc(rows + 1, sizeof *f->first);
    enum error_code e = cosine && f->first ? sphere_rows(grid, nlat, cosine, cosine + rows, err)
                                           : fail(err, ERR_MEMORY, "no memory for %lld rows", (long long)nlat);
    cutoff *= 1 + 1e-3;                 /* as released: the points on the border are inside */
    /* The first call counts the points of every row, from which the sizes follow. */
    const size_t points = e ? 0 : (size_t)find_points(f, cosine, radial, angular, cutoff);
    f->row = calloc(points + 1, sizeof *f->row), f->column = calloc(points + 1, sizeof *f->column);
    f->psi = calloc(points * (size_t)f->K + 1, sizeof *f->psi);
    if (!e && !(f->row && f->column && f->psi))
        e = fail(err, ERR_MEMORY, "no memory for a filter of %zu points", points);
    if (!e) find_points(f, cosine, radial, angular, cutoff), normalise(f, cosine + rows);
    free(cosine);
    if (e) filter_close(f);
    return e;
}

void filter_close(struct filter *f)
{
    free(f->first), free(f->row), free(f->column), free(f->psi);
    *f = (struct filter){ 0 };
}

/* ---- applying it ------------------------------------------------------------------------------------------------- */

/* y[p] += a x[(j + p) mod n]. */
static void add_turned(double *y, double a, const double *x, int64_t j, int64_t n)
{
    for (int64_t p = 0; p < n - j; p++) y[p] += a * x[p + j];
    for (int64_t p = n - j; p < n; p++) y[p] += a * x[p + j - n];
}

void filter_apply(const struct filter *f, int64_t n, struct range inputs, const double *x, struct range outputs,
                  double *y)
{
    memset(y, 0, (size_t)(n * f->K * outputs.count * f->nlon) * sizeof *y);
    for (int64_t c = 0; c < n; c++, x += inputs.count * f->nlon)
        for (int64_t k = 0; k < f->K; k++)
            for (int64_t t = outputs.first; t < outputs.first + outputs.count; t++, y += f->nlon)
                for (int64_t e = f->first[t]; e < f->first[t + 1]; e++) {
                    /* y[c,k,t,:] += psi[e,k] x[c,i,:] turned by the point's column; inputs without row i leave their
                     * part out. */
                    const int64_t i = f->row[e] - inputs.first;
                    if (i >= 0 && i < inputs.count)
                        add_turned(y, f->psi[e * f->K + k], x + i * f->nlon, f->column[e], f->nlon);
                }
}

void filter_apply_transposed(const struct filter *f, int64_t n, struct range inputs, double *d_x, struct range outputs,
                             const double *d_y)
{
    memset(d_x, 0, (size_t)(n * inputs.count * f->nlon) * sizeof *d_x);
    for (int64_t c = 0; c < n; c++, d_x += inputs.count * f->nlon)
        for (int64_t k = 0; k < f->K; k++)
            for (int64_t t = outputs.first; t < outputs.first + outputs.count; t++, d_y += f->nlon)
                for (int64_t e = f->first[t]; e < f->first[t + 1]; e++) {
                    /* d_x[c,i,:] += psi[e,k] d_y[c,k,t,:], turned back by the same column. */
                    const int64_t i = f->row[e] - inputs.first;
                    if (i >= 0 && i < inputs.count)
                        add_turned(d_x + i * f->nlon, f->psi[e * f->K + k], d_y, (f->nlon - f->column[e]) % f->nlon,
                                   f->nlon);
                }
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

void mixing_forward(struct mixing m, const double *y, const double *weight, double *out)
{
    const int64_t columns = m.in * m.K;
    memset(out, 0, (size_t)(m.B * m.out * m.points) * sizeof *out);
    for (int64_t b = 0; b < m.B; b++)
        for (int64_t o = 0; o < m.out; o++)
            for (int64_t i = 0; i < columns; i++)
                for (int64_t p = 0; p < m.points; p++)
                    /* out[b,o,:] = sum over (channel, k) of weight[o,(channel,k)] y[b,(channel,k),:]. */
                    out[(b * m.out + o) * m.points + p] +=
                        weight[o * columns + i] * y[(b * columns + i) * m.points + p];
}

void mixing_backward(struct mixing m, const double *y, const double *weight, const double *d_out, double *d_y,
                     double *d_weight)
{
    const int64_t columns = m.in * m.K;
    memset(d_y, 0, (size_t)(m.B * columns * m.points) * sizeof *d_y);
    memset(d_weight, 0, (size_t)(m.out * columns) * sizeof *d_weight);
    for (int64_t b = 0; b < m.B; b++)
        for (int64_t o = 0; o < m.out; o++)
            for (int64_t i = 0; i < columns; i++)
                for (int64_t p = 0; p < m.points; p++) {
                    /* d_y[b,i,:] += weight[o,i] d_out[b,o,:];  d_weight[o,i] += sum over b and points of y d_out. */
                    const double d = d_out[(b * m.out + o) * m.points + p];
                    d_y[(b * columns + i) * m.points + p] += weight[o * columns + i] * d;
                    d_weight[o * columns + i] += y[(b * columns + i) * m.points + p] * d;
                }
}
