/* spatial.h -- fields on the sphere, cut into tiles of latitudes and longitudes: transforms, convolution and score.
 *
 * Source   FourCastNet 3, arXiv:2507.12144; torch-harmonics (NVIDIA), torch_harmonics/distributed; makani (NVIDIA)
 * Group    samples x ensemble x polar x azimuth devices.  Rank (((s ensemble) + e) polar + i) azimuth + j has the i-th
 *          of nearly equal ranges of rows, north to south, and the j-th of longitudes.  A spectrum is cut likewise:
 *          degrees along polar, orders along azimuth.  The members of an ensemble are cut along ensemble, the samples
 *          of a batch along samples
 * Layout   N fields (batch times channels) as [N, rows, longitudes]; between, an all-to-all makes one dimension whole
 *          and cuts N.  The released code pads N to the size of the group; here a device may have no field
 * Sends    transforms   four all-to-alls: each sends the local tile, less what the device keeps of it: (g-1)/g of it
 *                       if all numbers divide
 *          convolution  two all-to-alls along azimuth; along polar between them
 *            SCATTERED  forward a reduce-scatter, backward an all-gather: K numbers for each point
 *            HALO       the rows within the filter's reach, to whoever needs them; backward their gradients, home.
 *                       In backward also an all-reduce of the weights' gradients
 *          score        an all-to-all of points for members each way; an all-reduce of a number for each channel
 * Memory   BUFFERS: what is packed and what arrives, of one exchange at a time
 * Equals   transforms permute: the bits of one device.  So does HALO forward.  The rest reassociates sums
 * Called   Files of schemes/spatial/, verify/cases/, verify/jobs/ and weather/ call these functions.
 *
 * All numbers are fp64.  Operations of ref/sphere run on host views.
 */
#ifndef ORRERY_SPATIAL_H
#define ORRERY_SPATIAL_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/sphere/convolution.h"
#include "ref/sphere/crps.h"
#include "ref/sphere/harmonics.h"

enum tile_axis { SAMPLES, ENSEMBLE, POLAR, AZIMUTH, TILE_AXES };

struct tiling {
    int size[TILE_AXES], place[TILE_AXES];      /* devices along each axis, and where this one is */
    struct group along[TILE_AXES];              /* the devices that differ from this one in one axis */
    struct group tiles;                         /* polar x azimuth: one field */
    struct group all;                           /* ensemble x polar x azimuth: the same samples */
};

/**
 * Create the groups of one device.
 * Local; as many of the first devices of the job as the product of the sizes take part, in the order of ranks, and call
 * it.
 * @return OK, ERR_PLAN if there are not as many devices, ERR_MEMORY; after an error there is nothing to close.
 */
enum error_code tiling_open(struct tiling *, struct comm *, const int size[TILE_AXES], struct error *);
void tiling_close(struct tiling *);

/** The group of devices that differ from this one only along some axes, with messages of a kind.
 *  @param axes  bits 1 << enum tile_axis.  @return OK or ERR_MEMORY. */
enum error_code tiling_group(struct group *, struct comm *, const int size[TILE_AXES], unsigned axes, enum traffic_kind,
                             struct error *);

/** This device's part of `count` rows, degrees, longitudes, orders or members. */
struct interval tiling_part(const struct tiling *, enum tile_axis, int64_t count);

/* ---- transforms.c ------------------------------------------------------------------------------------------------ */

/**
 * A tile of a grid to a tile of its spectrum (ref/sphere/harmonics.h): an analysis, or a synthesis backward.
 * Collective over polar x azimuth.
 * @param x       [N, rows, longitudes] of this device, in its memory.
 * @param[out] c  [N, degrees, orders, 2] of this device.
 * @param cost    not NULL: add what would be sent, and do nothing else; x and c are not read.
 * @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on.
 */
enum error_code spatial_to_spectrum(struct tiling *, const struct harmonics *, enum transform, int64_t N,
                                    struct tensor x, struct tensor c, struct account *cost, struct error *);

/** The way back: a synthesis, or an analysis backward. */
enum error_code spatial_to_grid(struct tiling *, const struct harmonics *, enum transform, int64_t N, struct tensor c,
                                struct tensor x, struct account *cost, struct error *);

/* ---- convolution.c ----------------------------------------------------------------------------------------------- */

enum convolution_form { SCATTERED, HALO };

struct spatial_convolution {
    const struct filter *filter;                /* of the whole grid, the same on every device */
    enum convolution_form form; /* HALO: inputs beside a tile are sent; SCATTERED: partial sums of outputs */
    int64_t B, in, out, groups;                 /* fields, channels of each before and after; groups of channels */
    bool given;                                 /* x is no result: backward computes the weights' gradient alone */
};

/**
 * A local convolution of tiles (ref/sphere/convolution.h).
 * Collective over polar x azimuth.
 * @param x        [B, in, rows, longitudes] of this device.
 * @param weight   [out, in / groups, K], the same on every device.
 * @param[out] y   [B, in, K, rows, longitudes], for backward.
 * @param[out] out [B, out, rows, longitudes].
 * @param cost     as above.
 */
enum error_code spatial_convolve(struct tiling *, const struct spatial_convolution *, struct tensor x,
                                 struct tensor weight, struct tensor y, struct tensor out, struct account *cost,
                                 struct error *);

/** Backward: d_x of this device, unless x is given; and d_weight of all tiles, the same on each. */
enum error_code spatial_convolve_backward(struct tiling *, const struct spatial_convolution *, struct tensor y,
                                          struct tensor weight, struct tensor d_out, struct tensor d_x,
                                          struct tensor d_weight, struct account *cost, struct error *);

/* ---- score.c ----------------------------------------------------------------------------------------------------- */

struct spatial_score {
    const struct harmonics *grid;               /* its rows and their weights */
    int64_t members, channels;                  /* of the ensemble; batch times channels */
    double alpha;                               /* as in ref/sphere/crps.h */
};

/**
 * The score of an ensemble (ref/sphere/crps.h) over the whole sphere, whose area is 1, and its gradient.
 * Collective over the devices with the same samples.
 * @param forecast         [members, channels, rows, longitudes] of this device.
 * @param observed         [channels, rows, longitudes] of this device.
 * @param[out] loss        [channels], the same on every device.
 * @param d_loss           [channels].
 * @param[out] d_forecast  as forecast; .data NULL: not wanted.
 * @param cost             as above.
 */
enum error_code spatial_crps(struct tiling *, const struct spatial_score *, struct tensor forecast,
                             struct tensor observed, struct tensor loss, struct tensor d_loss, struct tensor d_forecast,
                             struct account *cost, struct error *);

/* ---- the registry ------------------------------------------------------------------------------------------------ */

/* A scheme as `orrery list` and `orrery verify` know it. */
struct spatial_scheme {
    struct scheme head;                         /* name, description, source; first, for casts */
    enum { TRANSFORMS, CONVOLUTION, SCORE } operation;  /* which operation the scheme is for */
    enum convolution_form form;                 /* of a convolution */
};

SCHEME_CASTS(SPATIAL_SCHEME, spatial_scheme)    /* spatial_scheme_at, spatial_scheme_find */

#endif
