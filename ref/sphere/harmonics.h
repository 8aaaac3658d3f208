/* harmonics.h -- the real spherical harmonic transform and its inverse, forward and backward.
 *
 * Source  torch-harmonics (NVIDIA), RealSHT and InverseRealSHT, norm "ortho" with the Condon-Shortley phase
 * Called  schemes/spatial/transforms.c and verify/cases/spatial.c call these functions.
 *
 *     analysis    c[l][m] = 2 pi / nlon  sum_k w_k P_l^m(cos theta_k)  sum_j x[k][j] exp(-2 pi i m j / nlon)
 *     synthesis   x[k][j] = Re sum_m s_m  sum_l P_l^m(cos theta_k) c[l][m] exp(2 pi i m j / nlon);  s_m is 1 for m = 0
 *                 and for 2 m = nlon, else 2
 *
 * Degrees l and orders m run from 0 to degrees - 1.  A complex number is two doubles.  Elements with m > l are 0 after
 * an analysis, and a synthesis does not depend on them.
 *
 * Both are linear, so a backward pass is the transpose.  The transpose of an analysis has the form of a synthesis, and
 * the reverse, with the factors of the other one.  So there are two directions, each in two steps, with the factors of
 * either transform:
 *
 *     to the spectrum   analysis forward,  synthesis backward     rows to orders, then latitudes to degrees
 *     to the grid       synthesis forward, analysis backward      degrees to latitudes, then orders to rows
 */
#ifndef ORRERY_SPHERE_HARMONICS_H
#define ORRERY_SPHERE_HARMONICS_H

#include "ref/sphere/grid.h"

enum transform { ANALYSIS, SYNTHESIS };

struct harmonics {
    int64_t nlat, nlon;                 /* latitudes and longitudes of the grid */
    int64_t degrees;                    /* of them as many orders: triangular truncation */
    double *weight;                     /* [nlat] of the quadrature */
    double *cosine, *sine;              /* [nlon] of the longitudes */
    double *legendre;                   /* [orders, degrees, nlat] P_l^m(cos theta_k), normalised */
};

/**
 * Compute the tables.
 * @param degrees  0: as many as the grid integrates exactly, (nlat + 1) / 2 or with LEGENDRE_GAUSS nlat.  In any case
 *                 at most nlon / 2 + 1.
 * @return OK, ERR_USAGE or ERR_MEMORY; after an error there is nothing to close.
 */
enum error_code harmonics_open(struct harmonics *, enum sphere_grid, int64_t nlat, int64_t nlon, int64_t degrees,
                               struct error *);
void harmonics_close(struct harmonics *);

/** A grid to its spectrum.  @param x  [n, nlat, nlon].  @param[out] c  [n, degrees, degrees, 2].
 *  @return OK or ERR_MEMORY. */
enum error_code harmonics_to_spectrum(const struct harmonics *, enum transform, int64_t n, const double *x, double *c,
                                      struct error *);

/** The way back.  @param c  [n, degrees, degrees, 2].  @param[out] x  [n, nlat, nlon].  @return OK or ERR_MEMORY. */
enum error_code harmonics_to_grid(const struct harmonics *, enum transform, int64_t n, const double *c, double *x,
                                  struct error *);

/* ---- the steps, each with whole rows or whole columns ------------------------------------------------------------ */

/** x [rows, nlon] to modes [rows, degrees, 2]. */
void harmonics_orders(const struct harmonics *, enum transform, int64_t rows, const double *x, double *modes);

/** modes [rows, degrees, 2] to x [rows, nlon]. */
void harmonics_longitudes(const struct harmonics *, enum transform, int64_t rows, const double *modes, double *x);

/** For some orders: modes [n, nlat, orders, 2] to c [n, degrees, orders, 2]. */
void harmonics_degrees(const struct harmonics *, enum transform, struct range orders, int64_t n, const double *modes,
                       double *c);

/** For some orders: c [n, degrees, orders, 2] to modes [n, nlat, orders, 2]. */
void harmonics_latitudes(const struct harmonics *, enum transform, struct range orders, int64_t n, const double *c,
                         double *modes);

#endif
