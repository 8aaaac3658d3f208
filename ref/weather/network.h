/* network.h -- FourCastNet 3 as a table: its parameters, and nodes that compute fields from fields.
 *
 * Source  B. Bonev et al., "FourCastNet 3", arXiv:2507.12144; makani (NVIDIA), AtmoSphericNeuralOperatorNet with
 *         scale_factor 1, one grid of type equiangular, max_modes (degrees, degrees), and without norms and biases of
 *         convolutions: encoder, data and blocks have one grid, so the decoder resamples nothing
 *
 *     encoder   variables of each level, then of the surface, by a local convolution; the noise by another one
 *     block     z = fields beside the noise's; w = spectral or local convolution of z; w = two layers with gelu of w;
 *               fields = fields + scale w
 *     decoder   a local convolution for each level, and one for the surface
 *
 * serial.c runs the table on the whole globe, and emulated_devices/weather/ on tiles of it.
 */
#ifndef ORRERY_WEATHER_NETWORK_H
#define ORRERY_WEATHER_NETWORK_H

#include "ref/sphere/convolution.h"
#include "ref/sphere/harmonics.h"
#include <stdbool.h>

/* The sizes of a model. */
struct weather_shape {
    const char *name;                   /* as --model takes it */
    int64_t nlat, nlon, degrees;        /* of the grid, both poles are rows; degrees of spectra, and as many orders */
    int64_t levels, variables, surface, noise;          /* levels of pressure, fields of each; fields of the surface;
                                         * fields of noise */
    int64_t level_width, surface_width, noise_width;    /* channels that the encoders make of each of these */
    int64_t layers, every;              /* blocks; every so many blocks, from the first, is spectral */
    int64_t ratio;                      /* hidden channels of a block, for each of its channels */
    int radial, angular;                /* basis functions of the local filters: K is the product */
};

/* Who has the weights, and which sum their gradient is, on tiles. */
enum weather_share {
    WEATHER_POINTWISE,                  /* on all devices; each tile has a part of the sum over points */
    WEATHER_FILTERS,                    /* on all devices; the local convolution sums over tiles itself */
    WEATHER_DEGREES,                    /* the degrees of a device's spectrum; its orders have a part of the sum */
    WEATHER_SHARES
};

enum { WEATHER_DIMS = 4, WEATHER_NAME = 40, WEATHER_MOST_LAYERS = 12, WEATHER_MOST_PARAMS = 5 + 6 * WEATHER_MOST_LAYERS,
       WEATHER_MOST_NODES = 12 + 6 * WEATHER_MOST_LAYERS };

/* A parameter, named as in the released code. */
struct weather_param {
    char name[WEATHER_NAME];            /* blocks.0.mlp.fwd.0.weight */
    int64_t size[WEATHER_DIMS];         /* 1 where there is no dimension; degrees are size[2], of complex numbers */
    int dims;                           /* that it has */
    enum weather_share share;           /* who has it */
    int64_t count, at;                  /* numbers; place in the vector of all parameters */
    double deviation, mean;             /* of the initial weights */
};

/* Slots hold [N, channels, points], N = members times samples. */
enum weather_op {
    WEATHER_TAKE,                       /* out = some channels of in, from `first` on */
    WEATHER_JOIN,                       /* out = the channels of in, then those of more */
    WEATHER_LOCAL,                      /* out = local convolution of in */
    WEATHER_GLOBAL,                     /* out = spectral convolution of in */
    WEATHER_LINEAR,                     /* out = weight in + bias, at every point */
    WEATHER_GELU,                       /* out = gelu of in, by the error function */
    WEATHER_RESIDUAL,                   /* out = in + weight more, channel by channel */
};

struct weather_node {
    enum weather_op op;                 /* what it computes */
    int in, more, out;                  /* slots; more -1: none */
    int weight, bias;                   /* parameters; -1: none */
    int64_t first;                      /* WEATHER_TAKE: the first channel */
    int64_t parts;                      /* WEATHER_LOCAL: each of these parts of the channels is a field of its own */
    int64_t groups;                     /* WEATHER_LOCAL: of channels that are mixed among themselves */
    int filter;                         /* WEATHER_LOCAL: index in weather_network.filter */
    bool given;                         /* in is not computed, so it has no gradient */
};

/* Filters of two reaches: that of a block sees twice as far. */
enum { FILTER_OF_ENDS, FILTER_OF_BLOCKS, WEATHER_FILTER_COUNT };
/* The slots that are given. */
enum { SLOT_STATE, SLOT_NOISE, SLOTS_GIVEN };

struct weather_network {
    struct weather_shape shape;         /* sizes */
    int params, nodes, slots, output;   /* how many; the slot of the forecast */
    struct weather_param param[WEATHER_MOST_PARAMS];    /* [params] */
    struct weather_node node[WEATHER_MOST_NODES];       /* [nodes] in the order of computing */
    int64_t channels[WEATHER_MOST_NODES + SLOTS_GIVEN]; /* [slots] of each */
    int64_t share_at[WEATHER_SHARES + 1];       /* where the parameters of a share begin; last, how many there are */
    struct harmonics harmonics;         /* tables of the transforms */
    struct filter filter[WEATHER_FILTER_COUNT]; /* psi of both */
};

/** The models there are, the last without a name.  @return table. */
const struct weather_shape *weather_shapes(void);

/** The model of this name, or NULL.  @param name  NULL: none. */
const struct weather_shape *weather_shape_find(const char *name);

/** Channels of a state of the atmosphere. */
int64_t weather_channels(const struct weather_shape *);

/** Points of the globe. */
int64_t weather_points(const struct weather_shape *);

/**
 * Make the table, and the tables of transforms and filters.
 * @return OK, ERR_USAGE for sizes that cannot be, or ERR_MEMORY; after an error there is nothing to close.
 */
enum error_code weather_open(struct weather_network *, const struct weather_shape *, struct error *);

/** Do the same without the tables of transforms, which only numbers need: for runs that count.  @return likewise. */
enum error_code weather_open_without(struct weather_network *, const struct weather_shape *, struct error *);
void weather_close(struct weather_network *);

/** Draw one initial weight: it depends on seed, name and place alone.  @param i  in the whole parameter. */
double weather_initial(const struct weather_param *, uint64_t seed, int64_t i);

#endif
