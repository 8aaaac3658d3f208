/* network.c -- makes the table of FourCastNet 3 from the sizes of a model.
 *
 * serial.c, emulated_devices/weather/ and tests open a network.  Errors: ERR_USAGE and ERR_MEMORY of the sphere's
 * tables.
 */
#include "ref/weather/network.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static const struct weather_shape shapes[] = {
    { .name = "fourcastnet-tiny", .nlat = 13, .nlon = 24, .degrees = 7, .levels = 2, .variables = 2, .surface = 2,
      .noise = 1, .level_width = 4, .surface_width = 4, .noise_width = 2, .layers = 2, .every = 2, .ratio = 2,
      .radial = 3, .angular = 3 },
    { .name = "fourcastnet-small", .nlat = 21, .nlon = 40, .degrees = 11, .levels = 3, .variables = 5, .surface = 3,
      .noise = 2, .level_width = 10, .surface_width = 6, .noise_width = 4, .layers = 5, .every = 5, .ratio = 2,
      .radial = 3, .angular = 3 },
    /* The published sizes: 13 levels of 5 variables, 7 fields of the surface, 10 blocks, 677 channels with the noise's.
     * What is given beside the state is 12 fields: 8 of noise, and land, orography and sun. */
    { .name = "fourcastnet-3", .nlat = 360, .nlon = 720, .degrees = 360, .levels = 13, .variables = 5, .surface = 7,
      .noise = 12, .level_width = 45, .surface_width = 56, .noise_width = 36, .layers = 10, .every = 5, .ratio = 2,
      .radial = 3, .angular = 3 },
    { .name = "fourcastnet-3-fine", .nlat = 721, .nlon = 1440, .degrees = 360, .levels = 13, .variables = 5,
      .surface = 7, .noise = 12, .level_width = 45, .surface_width = 56, .noise_width = 36, .layers = 10, .every = 5,
      .ratio = 2, .radial = 3, .angular = 3 },
    { .name = NULL },
};

const struct weather_shape *weather_shapes(void) { return shapes; }

const struct weather_shape *weather_shape_find(const char *name)
{
    for (const struct weather_shape *s = shapes; s->name && name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

int64_t weather_channels(const struct weather_shape *shape)
{
    return shape->levels * shape->variables + shape->surface;
}

int64_t weather_points(const struct weather_shape *shape) { return shape->nlat * shape->nlon; }

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int64_t common(int64_t a, int64_t b) { return b == 0 ? a : common(b, a % b); }

/* The result is a new slot with so many channels. */
static int slot(struct weather_network *network, int64_t channels)
{
    network->channels[network->slots] = channels;
    return network->slots++;
}

/* Name a parameter; its sizes are those not 0. */
static int param(struct weather_network *network, enum weather_share share, double mean, double deviation,
                 const int64_t size[WEATHER_DIMS], const char *format, ...) __attribute__((format(printf, 6, 7)));
static int param(struct weather_network *network, enum weather_share share, double mean, double deviation,
                 const int64_t size[WEATHER_DIMS], const char *format, ...)
{
    struct weather_param *const p = &network->param[network->params];
    va_list args;
    va_start(args, format);
    *p = (struct weather_param){ .share = share, .mean = mean, .deviation = deviation, .count = 1 };
    vsnprintf(p->name, sizeof p->name, format, args);
    va_end(args);
    for (int i = 0; i < WEATHER_DIMS; i++) {
        p->size[i] = size[i] ? size[i] : 1;
        p->count *= p->size[i], p->dims += size[i] != 0;
    }
    return network->params++;
}

static int node(struct weather_network *network, struct weather_node node, int64_t channels)
{
    node.out = slot(network, channels);
    node.given = node.in < SLOTS_GIVEN;
    network->node[network->nodes++] = node;
    return node.out;
}

#define SIZE(...) ((const int64_t[WEATHER_DIMS]){ __VA_ARGS__ })

static int slot_take(struct weather_network *network, int in, int64_t first, int64_t channels)
{
    return node(network, (struct weather_node){ .op = WEATHER_TAKE, .in = in, .more = -1, .weight = -1, .bias = -1,
                                               .first = first }, channels);
}

/* A local convolution of `parts` fields each, from some channels to others; the deviation keeps the variance. */
static int local(struct weather_network *network, int in, int64_t parts, int64_t from, int64_t to, int64_t groups,
                 int filter, const char *name)
{
    const int64_t K = (int64_t)network->shape.radial * network->shape.angular;
    const int weight = param(network, WEATHER_FILTERS, 0, sqrt((double)groups / (double)(from * K)),
                             SIZE(to, from / groups, K), "%s.weight", name);
    return node(network, (struct weather_node){ .op = WEATHER_LOCAL, .in = in, .more = -1, .weight = weight, .bias = -1,
                                               .parts = parts, .groups = groups, .filter = filter }, parts * to);
}

/* A layer of the channels of each point, with a bias. */
static int linear(struct weather_network *network, int in, int64_t from, int64_t to, double deviation, int block,
                  int index)
{
    const int w = param(network, WEATHER_POINTWISE, 0, deviation, SIZE(to, from), "blocks.%d.mlp.fwd.%d.weight", block,
                        index);
    const int b = param(network, WEATHER_POINTWISE, 0, 0, SIZE(to), "blocks.%d.mlp.fwd.%d.bias", block, index);
    return node(network, (struct weather_node){ .op = WEATHER_LINEAR, .in = in, .more = -1, .weight = w, .bias = b },
                to);
}

/* The noise is beside the fields in every block; the fields alone go on. */
static int block(struct weather_network *network, int in, int noise, int i)
{
    const struct weather_shape *const s = &network->shape;
    const int64_t T = network->channels[in], C = T + network->channels[noise], F = C * s->ratio;
    char name[WEATHER_NAME];
    const int z = node(network, (struct weather_node){ .op = WEATHER_JOIN, .in = in, .more = noise, .weight = -1,
                                                      .bias = -1 }, C);
    int w;
    if (i % s->every == 0) {
        /* Real and imaginary part of a number with variance 1 / C. */
        const int weight = param(network, WEATHER_DEGREES, 0, sqrt(0.5 / (double)C), SIZE(C, C, s->degrees, 2),
                                 "blocks.%d.global_conv.weight", i);
        w = node(network, (struct weather_node){ .op = WEATHER_GLOBAL, .in = z, .more = -1, .weight = weight,
                                                .bias = -1 }, C);
    } else {
        snprintf(name, sizeof name, "blocks.%d.local_conv", i);
        w = local(network, z, 1, C, C, 1, FILTER_OF_BLOCKS, name);
    }
    w = linear(network, w, C, F, sqrt(2.0 / (double)C), i, 0);
    w = node(network, (struct weather_node){ .op = WEATHER_GELU, .in = w, .more = -1, .weight = -1, .bias = -1 }, F);
    w = linear(network, w, F, T, sqrt(1.0 / (double)F), i, 3);
    const int scale = param(network, WEATHER_POINTWISE, 0.1, 0, SIZE(T), "blocks.%d.layer_scale.weight", i);
    return node(network, (struct weather_node){ .op = WEATHER_RESIDUAL, .in = in, .more = w, .weight = scale,
                                               .bias = -1 }, T);
}

/* Encode levels and surface, run the blocks, decode both. */
static void make_table(struct weather_network *network)
{
    const struct weather_shape *const s = &network->shape;
    const int64_t levels = s->levels * s->variables, wide = s->levels * s->level_width;
    const int64_t of_level = common(s->variables, s->level_width), of_surface = common(s->surface, s->surface_width);
    network->slots = SLOTS_GIVEN;
    network->channels[SLOT_STATE] = weather_channels(s), network->channels[SLOT_NOISE] = s->noise;
    int a = slot_take(network, SLOT_STATE, 0, levels), b = slot_take(network, SLOT_STATE, levels, s->surface);
    a = local(network, a, s->levels, s->variables, s->level_width, of_level, FILTER_OF_ENDS, "atmo_encoder.conv");
    b = local(network, b, 1, s->surface, s->surface_width, of_surface, FILTER_OF_ENDS, "surf_encoder.conv");
    const int noise = local(network, SLOT_NOISE, 1, s->noise, s->noise_width, common(s->noise, s->noise_width),
                            FILTER_OF_ENDS, "aux_encoder.conv");
    int x = node(network, (struct weather_node){ .op = WEATHER_JOIN, .in = a, .more = b, .weight = -1, .bias = -1 },
                 wide + s->surface_width);
    for (int i = 0; i < s->layers; i++) x = block(network, x, noise, i);
    a = slot_take(network, x, 0, wide), b = slot_take(network, x, wide, s->surface_width);
    a = local(network, a, s->levels, s->level_width, s->variables, of_level, FILTER_OF_ENDS, "atmo_decoder.conv");
    b = local(network, b, 1, s->surface_width, s->surface, of_surface, FILTER_OF_ENDS, "surf_decoder.conv");
    network->output = node(network, (struct weather_node){ .op = WEATHER_JOIN, .in = a, .more = b, .weight = -1,
                                                          .bias = -1 }, weather_channels(s));
}

/* Parameters of one share stand together, so that one message reduces them.  What is taken from a given slot is given,
 * too. */
static void place(struct weather_network *network)
{
    int64_t at = 0;
    for (enum weather_share share = 0; share < WEATHER_SHARES; share++) {
        network->share_at[share] = at;
        for (int i = 0; i < network->params; i++)
            if (network->param[i].share == share) network->param[i].at = at, at += network->param[i].count;
    }
    network->share_at[WEATHER_SHARES] = at;
    for (int i = 0; i < network->nodes; i++)
        for (int j = 0; j < i; j++)
            if (network->node[j].out == network->node[i].in && network->node[j].op == WEATHER_TAKE)
                network->node[i].given = network->node[j].given;
}

static enum error_code open_network(struct weather_network *network, const struct weather_shape *shape, bool tables,
                                    struct error *err)
{
    enum error_code e = OK;
    *network = (struct weather_network){ .shape = *shape };
    if (shape->layers < 1 || shape->layers > WEATHER_MOST_LAYERS || shape->every < 1)
        return fail(err, ERR_USAGE, "a model of %lld blocks: must have 1 to %d", (long long)shape->layers,
                    WEATHER_MOST_LAYERS);
    make_table(network);
    place(network);
    const double cutoff = (shape->radial + 1) * 0.5 * pi / (double)(shape->nlat - 1);
    network->harmonics = (struct harmonics){ .nlat = shape->nlat, .nlon = shape->nlon, .degrees = shape->degrees };
    if (tables) e = harmonics_open(&network->harmonics, EQUIANGULAR, shape->nlat, shape->nlon, shape->degrees, err);
    for (int i = 0; i < WEATHER_FILTER_COUNT && !e; i++)
        e = filter_open(&network->filter[i], EQUIANGULAR, shape->nlat, shape->nlon, shape->radial, shape->angular,
                        (i + 1) * cutoff, err);
    if (e) weather_close(network);
    return e;
}

enum error_code weather_open(struct weather_network *network, const struct weather_shape *shape, struct error *err)
{
    return open_network(network, shape, true, err);
}

enum error_code weather_open_without(struct weather_network *network, const struct weather_shape *shape,
                                     struct error *err)
{
    return open_network(network, shape, false, err);
}

void weather_close(struct weather_network *network)
{
    harmonics_close(&network->harmonics);
    for (int i = 0; i < WEATHER_FILTER_COUNT; i++) filter_close(&network->filter[i]);
}

/* The released code doubles the variance of degree 0, whose numbers are real. */
double weather_initial(const struct weather_param *param, uint64_t seed, int64_t i)
{
    const bool lowest = param->share == WEATHER_DEGREES && i / param->size[3] % param->size[2] == 0;
    if (param->deviation == 0) return param->mean;
    return param->mean + param->deviation * (lowest ? sqrt(2) : 1)
        * random_normal(seed, random_stream(param->name), (uint64_t)i);
}
