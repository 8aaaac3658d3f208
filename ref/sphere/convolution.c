/* convolution.c -- the sparse filter of a local convolution on the sphere, applied and transposed.
 *
 * schemes/spatial/ and verify/cases/ call this file.  Only filter_open can fail: ERR_USAGE and ERR_MEMORY, with
 * nothing to close.
 */
#include "ref/sphere/convolution.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* ---- psi --------------------------------------------------------------------------------------------------------- */

/* Angle and direction of a point, seen from point (t, 0): a rotation about the y axis brings the latter to the pole. */
struct seen { double angle, x, y; };            /* x, y: of the unit vector */

static struct seen convolution_look(double t, double i, double longitude)
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
static void basis(double psi[], int radial, int angular, struct seen seen, double cutoff)
{
    const double r = seen.angle / cutoff, window = cos(0.5 * pi * r) * cos(0.5 * pi * r);
    for (int k = 0; k < radial * angular; k++)
        psi[k] = window * wave(k % angular, r * seen.y) * wave(k / angular, r * seen.x);
}

/* By so much a cosine may be off, at most. */
static const double margin = 1e-9;

/* Points of all rows; psi is only counted while filter->psi is NULL.  The cosine of an angle alone rules out most
 * points of a fine grid.  `turn` [nlon] has cosines of longitudes. */
static int64_t find_points(struct filter *filter, const double cosine[], const double turn[], int radial, int angular,
                           double cutoff)
{
    const double least = cutoff < pi ? cos(cutoff) - margin : -2;
    int64_t found = 0;
    for (int64_t t = 0; t < filter->nlat; t++) {
        filter->first[t] = found;
        for (int64_t i = 0; i < filter->nlat; i++) {
            const double along = cosine[t] * cosine[i], across = sqrt((1 - cosine[t] * cosine[t])
                                                                      * (1 - cosine[i] * cosine[i]));
            for (int64_t j = 0; j < filter->nlon; j++) {
                if (along + across * turn[j] < least) continue;
                const struct seen s = convolution_look(acos(cosine[t]), acos(cosine[i]),
                                                       2 * pi * (double)j / (double)filter->nlon);
                if (s.angle > cutoff) continue;
                /* In the second call the arrays exist, and the point's place and its K values are stored. */
                if (filter->psi) {
                    filter->row[found] = (int32_t)i, filter->column[found] = (int32_t)j;
                    basis(filter->psi + found * filter->K, radial, angular, s, cutoff);
                    if (llabs(t - i) > filter->reach) filter->reach = llabs(t - i);
                }
                found++;
            }
        }
    }
    return filter->first[filter->nlat] = found;
}

/* The mode "mean": the integral of |psi_k|, in the mean over output rows, becomes 1.  Then the quadrature is put in;
 * over the whole sphere its weights sum to 1. */
static void normalise(struct filter *filter, const double weight[])
{
    for (int64_t k = 0; k < filter->K; k++) {
        double scale = 0;
        for (int64_t e = 0; e < filter->first[filter->nlat]; e++)
            scale += fabs(filter->psi[e * filter->K + k]) * weight[filter->row[e]] / (double)filter->nlon / 2;
        scale = fmax(scale / (double)filter->nlat, 1e-9);
        for (int64_t e = 0; e < filter->first[filter->nlat]; e++)
            filter->psi[e * filter->K + k] *= weight[filter->row[e]] / (double)filter->nlon / 2 / scale;
    }
}

/* Points are counted first, then the arrays are made and filled. */
enum error_code filter_open(struct filter *filter, enum sphere_grid grid, int64_t nlat, int64_t nlon, int radial,
                            int angular, double cutoff, struct error *err)
{
    *filter = (struct filter){ .nlat = nlat, .nlon = nlon, .K = (int64_t)radial * angular };
    if (nlon < 1 || radial < 1 || angular < 1 || !(cutoff > 0))
        return fail(err, ERR_USAGE, "a filter of %d x %d functions, cutoff %g: must be positive", radial, angular,
                    cutoff);
    const size_t rows = (size_t)(nlat < 2 ? 2 : nlat);
    double *const cosine = calloc(2 * rows + (size_t)nlon, sizeof *cosine);
    double *const turn = cosine ? cosine + 2 * rows : NULL;
    filter->first = calloc(rows + 1, sizeof *filter->first);
    enum error_code e = cosine && filter->first ? sphere_rows(grid, nlat, cosine, cosine + rows, err)
                                           : fail(err, ERR_MEMORY, "no memory for %lld rows", (long long)nlat);
    cutoff *= 1 + 1e-3;                 /* as released: the points on the border are inside */
    for (int64_t j = 0; j < nlon && !e; j++) turn[j] = cos(2 * pi * (double)j / (double)nlon);
    /* The first call counts the points of every row, from which the sizes follow. */
    const size_t points = e ? 0 : (size_t)find_points(filter, cosine, turn, radial, angular, cutoff);
    filter->row = calloc(points + 1, sizeof *filter->row), filter->column = calloc(points + 1, sizeof *filter->column);
    filter->psi = calloc(points * (size_t)filter->K + 1, sizeof *filter->psi);
    if (!e && !(filter->row && filter->column && filter->psi))
        e = fail(err, ERR_MEMORY, "no memory for a filter of %zu points", points);
    if (!e) find_points(filter, cosine, turn, radial, angular, cutoff), normalise(filter, cosine + rows);
    free(cosine);
    if (e) filter_close(filter);
    return e;
}

void filter_close(struct filter *filter)
{
    free(filter->first), free(filter->row), free(filter->column), free(filter->psi);
    *filter = (struct filter){ 0 };
}

/* ---- applying it ------------------------------------------------------------------------------------------------- */

/* y[p] += a x[(j + p) mod n]. */
static void add_turned(double *y, double a, const double *x, int64_t j, int64_t n)
{
    for (int64_t p = 0; p < n - j; p++) y[p] += a * x[p + j];
    for (int64_t p = n - j; p < n; p++) y[p] += a * x[p + j - n];
}

/* x [n, rows of `inputs`, nlon] and y [n, K, rows of `outputs`, nlon]: a device may have only some rows of both. */
void filter_apply(const struct filter *filter, int64_t n, struct range inputs, const double *x, struct range outputs,
                  double *y)
{
    memset(y, 0, (size_t)(n * filter->K * outputs.count * filter->nlon) * sizeof *y);
    for (int64_t c = 0; c < n; c++, x += inputs.count * filter->nlon)
        for (int64_t k = 0; k < filter->K; k++)
            for (int64_t t = outputs.first; t < outputs.first + outputs.count; t++, y += filter->nlon)
                for (int64_t e = filter->first[t]; e < filter->first[t + 1]; e++) {
                    /* y[c,k,t,:] += psi[e,k] x[c,i,:] turned by the point's column; inputs without row i leave their
                     * part out. */
                    const int64_t i = filter->row[e] - inputs.first;
                    if (i >= 0 && i < inputs.count)
                        add_turned(y, filter->psi[e * filter->K + k], x + i * filter->nlon, filter->column[e],
                                   filter->nlon);
                }
}

int64_t filter_pairs(const struct filter *filter, struct range inputs, struct range outputs)
{
    int64_t pairs = 0;
    for (int64_t e = filter->first[outputs.first]; e < filter->first[outputs.first + outputs.count]; e++)
        pairs += filter->row[e] >= inputs.first && filter->row[e] < inputs.first + inputs.count;
    return pairs;
}

/* d_x is the transpose of filter_apply: each point of the filter sends d_y back to the row that it read. */
void filter_apply_transposed(const struct filter *filter, int64_t n, struct range inputs, double *d_x,
                             struct range outputs, const double *d_y)
{
    memset(d_x, 0, (size_t)(n * inputs.count * filter->nlon) * sizeof *d_x);
    for (int64_t c = 0; c < n; c++, d_x += inputs.count * filter->nlon)
        for (int64_t k = 0; k < filter->K; k++)
            for (int64_t t = outputs.first; t < outputs.first + outputs.count; t++, d_y += filter->nlon)
                for (int64_t e = filter->first[t]; e < filter->first[t + 1]; e++) {
                    /* d_x[c,i,:] += psi[e,k] d_y[c,k,t,:], turned back by the same column. */
                    const int64_t i = filter->row[e] - inputs.first;
                    if (i >= 0 && i < inputs.count)
                        add_turned(d_x + i * filter->nlon, filter->psi[e * filter->K + k], d_y,
                                   (filter->nlon - filter->column[e]) % filter->nlon, filter->nlon);
                }
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

/* A product over channels and basis functions at every point: out [B, out, points]. */
void mixing_forward(struct mixing mixing, const double *y, const double *weight, double *out)
{
    const int64_t columns = mixing.in / mixing.groups * mixing.K, of_group = mixing.out / mixing.groups;
    memset(out, 0, (size_t)(mixing.B * mixing.out * mixing.points) * sizeof *out);
    for (int64_t b = 0; b < mixing.B; b++)
        for (int64_t o = 0; o < mixing.out; o++)
            for (int64_t i = 0; i < columns; i++) {
                /* out[b,o,:] = sum over (channel, k) of weight[o,(channel,k)] y[b,(channel,k),:], of o's group. */
                const double a = weight[o * columns + i],
                    *const from = y + ((b * mixing.groups + o / of_group) * columns + i) * mixing.points;
                double *const to = out + (b * mixing.out + o) * mixing.points;
                for (int64_t p = 0; p < mixing.points; p++) to[p] += a * from[p];
            }
}

/* Both gradients of mixing_forward; they are set, not added to. */
void mixing_backward(struct mixing mixing, const double *y, const double *weight, const double *d_out, double *d_y,
                     double *d_weight)
{
    const int64_t columns = mixing.in / mixing.groups * mixing.K, of_group = mixing.out / mixing.groups;
    memset(d_y, 0, (size_t)(mixing.B * mixing.in * mixing.K * mixing.points) * sizeof *d_y);
    memset(d_weight, 0, (size_t)(mixing.out * columns) * sizeof *d_weight);
    for (int64_t b = 0; b < mixing.B; b++)
        for (int64_t o = 0; o < mixing.out; o++)
            for (int64_t i = 0; i < columns; i++) {
                /* d_y[b,i,:] += weight[o,i] d_out[b,o,:];  d_weight[o,i] += sum over b and points of y d_out. */
                const int64_t at = ((b * mixing.groups + o / of_group) * columns + i) * mixing.points;
                const double a = weight[o * columns + i],
                    *const d = d_out + (b * mixing.out + o) * mixing.points;
                for (int64_t p = 0; p < mixing.points; p++) {
                    d_y[at + p] += a * d[p];
                    d_weight[o * columns + i] += y[at + p] * d[p];
                }
            }
}
