/* convolution.h -- local convolution on the sphere: discrete-continuous (DISCO), with a filter that is a sum of K basis
 * functions on a spherical cap.
 *
 * Source  J. Ocampo, M. Price, J. McEwen, "Scalable and equivariant spherical CNNs by discrete-continuous
 *         convolutions", arXiv:2209.13603; torch-harmonics (NVIDIA), DiscreteContinuousConvS2, in FourCastNet 3's form
 *         (arXiv:2507.12144): basis "harmonic", basis_norm_mode "mean"
 *
 *     y[c][k][t][p] = sum over (i, j) of psi_k[t][i][j] x[c][i][(j + p) mod nlon]
 *     out[o][t][p]  = sum over c, k of weight[o][c][k] y[c][k][t][p];  with groups, over channels c of the group of o
 *
 * psi is sparse: (i, j) are the points within the cutoff angle of point (t, 0); it contains the quadrature's weights.
 * Next to a pole these are points of all longitudes.
 *
 * schemes/spatial/ applies filters on a device's rows; verify/cases/ and ref/weather/ apply them whole.
 */
#ifndef ORRERY_SPHERE_CONVOLUTION_H
#define ORRERY_SPHERE_CONVOLUTION_H

#include "ref/sphere/grid.h"

struct filter {
    int64_t nlat, nlon, K;              /* latitudes and longitudes of the grid; basis functions */
    int64_t reach;                      /* the most rows between an output and an input */
    int64_t *first;                     /* [nlat + 1] where the points of each output row begin */
    int32_t *row, *column;              /* [points] */
    double *psi;                        /* [points, K] */
};

/**
 * Compute psi for two equal grids.
 * @param radial, angular  of the basis: K is their product.
 * @param cutoff           angle, in radians, > 0; FourCastNet 3: (radial + 1) pi / 2 / (nlat - 1).
 * @return OK, ERR_USAGE or ERR_MEMORY; after an error there is nothing to close.
 */
enum error_code filter_open(struct filter *, enum sphere_grid, int64_t nlat, int64_t nlon, int radial, int angular,
                            double cutoff, struct error *);
void filter_close(struct filter *);

/** y [n, K, outputs, nlon] from those rows of x [n, inputs, nlon] that are there: from a part of the inputs y is a part
 *  of the sum. */
void filter_apply(const struct filter *, int64_t n, struct range inputs, const double *x, struct range outputs,
                  double *y);

/** How many stored points have their input and their output in these rows. */
int64_t filter_pairs(const struct filter *, struct range inputs, struct range outputs);

/** Its transpose: d_x [n, inputs, nlon] from d_y [n, K, outputs, nlon]. */
void filter_apply_transposed(const struct filter *, int64_t n, struct range inputs, double *d_x, struct range outputs,
                             const double *d_y);

/* B fields of `in` channels to B of `out`, at some points.  Channels of each group are mixed among themselves: groups
 * divide in and out. */
struct mixing { int64_t B, in, out, K, points, groups; };

/** out [B, out, points] from y [B, in, K, points] and weight [out, in / groups, K]. */
void mixing_forward(struct mixing, const double *y, const double *weight, double *out);

/** d_y, and d_weight summed over fields and points, from d_out. */
void mixing_backward(struct mixing, const double *y, const double *weight, const double *d_out, double *d_y,
                     double *d_weight);

#endif
