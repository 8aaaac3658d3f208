/* grid.h -- latitude-longitude grids of the sphere, and the quadrature over their latitudes.
 *
 * Source  the grids of torch-harmonics (NVIDIA), torch_harmonics/quadrature.py; Clenshaw-Curtis weights in closed form:
 *         J. Waldvogel, "Fast construction of the Fejer and Clenshaw-Curtis quadrature rules",
 *         doi:10.1007/s10543-006-0045-4
 *
 * All of ref/sphere computes in double.  Row 0 is the north pole, or next to it; longitudes 2 pi j / nlon are periodic.
 *
 * convolution.c and harmonics.c call sphere_rows.
 */
#ifndef ORRERY_SPHERE_GRID_H
#define ORRERY_SPHERE_GRID_H

#include "ref/error.h"
#include <stdint.h>

enum sphere_grid {
    EQUIANGULAR,                        /* both poles are rows: Clenshaw-Curtis */
    LEGENDRE_GAUSS,                     /* roots of the Legendre polynomial */
};

/* Some adjacent rows, orders or degrees. */
struct range { int64_t first, count; };

/**
 * The rows of a grid.
 * @param nlat         at least 2.
 * @param[out] cosine  [nlat] cosines of colatitudes, from 1 (or next to it) down.
 * @param[out] weight  [nlat] of the quadrature over the cosine: their sum is 2.
 * @return OK, or ERR_USAGE if nlat is below 2.
 */
enum error_code sphere_rows(enum sphere_grid, int64_t nlat, double cosine[], double weight[], struct error *);

#endif
