/* convolution.c -- the local convolution of tiled fields, forward and backward, in two forms.
 *
 * verify/cases/spatial.c runs both forms beside ref/sphere/convolution.h.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/spatial/walk.h"

#define SIZE(...) ((const int64_t[WALK_DIMS]){ __VA_ARGS__ })

/* The extents of one call. */
struct call {
    int64_t N, n;                       /* fields, and those of this device after the all-to-all */
    struct range own, wide, all;        /* rows: of this device, with their halo, of the globe */
    struct mixing mixing;
};

/* The rows of this device follow from the tiling alone; a device without rows has no halo. */
static struct call convolution_call_of(const struct tiling *tiling, const struct spatial_convolution *convolution)
{
    const struct filter *const f = convolution->filter;
    const struct interval own = tiling_part(tiling, POLAR, f->nlat);
    const struct interval wide = own.count
        ? halo_of(f->nlat, tiling->size[POLAR], tiling->place[POLAR], f->reach) : own;
    return (struct call){ .N = convolution->B * convolution->in,
                         .n = tiling_part(tiling, AZIMUTH, convolution->B * convolution->in).count,
                          .own = { own.first, own.count }, .wide = { wide.first, wide.count }, .all = { 0, f->nlat },
                          .mixing = { convolution->B, convolution->in, convolution->out, f->K,
                                     own.count * tiling_part(tiling, AZIMUTH, f->nlon).count, convolution->groups } };
}

/* Each stored point of the filter is multiplied and added for every longitude. */
static void charge_filter(struct walk *walk, const struct filter *filter, int64_t fields, struct range inputs,
                          struct range outputs)
{
    const double pairs = (double)filter_pairs(filter, inputs, outputs);
    walk_charge(walk, "local convolution", 2 * pairs * (double)(fields * filter->K * filter->nlon),
                fields * filter->nlon * (inputs.count + filter->K * outputs.count));
}

/* Products over channels and basis functions: one forward, two backward. */
static void charge_mixing(struct walk *walk, struct mixing mixing, int products)
{
    const double each = 2 * (double)(mixing.B * mixing.out * mixing.in / mixing.groups * mixing.K * mixing.points);
    walk_charge(walk, "channels of a convolution", products * each,
                products * mixing.B * mixing.points * (mixing.in * mixing.K + mixing.out));
}

enum error_code spatial_convolve(struct tiling *tiling, const struct spatial_convolution *convolution, struct tensor x,
                                 struct tensor weight, struct tensor y, struct tensor out, struct account *cost,
                                 struct error *err)
{
    const struct filter *const f = convolution->filter;
    const struct call c = convolution_call_of(tiling, convolution);
    const bool halo = convolution->form == HALO;
    /* HALO computes all of the own rows from a wide input.  SCATTERED computes parts of all rows from the own input. */
    const struct range inputs = halo ? c.wide : c.own, outputs = halo ? c.own : c.all;
    struct walk w = walk_from(tiling, cost, SIZE(c.N, 1, c.own.count,
                                                 tiling_part(tiling, AZIMUTH, f->nlon).count), x, err);
    /* Fields [N, 1, rows, columns] are exchanged for whole circles of latitude. */
    walk_turn(&w, AZIMUTH, 0, 3, f->nlon);
    if (halo) walk_halo(&w, POLAR, 2, f->nlat, f->reach);
    struct walk_views v = walk_compute(&w, SIZE(c.n, f->K, outputs.count, f->nlon));
    /* [n, 1, input rows, longitudes] becomes [n, K, output rows, longitudes]. */
    if (v.to) filter_apply(f, c.n, inputs, v.from, outputs, v.to), walk_computed(&w, &v);
    charge_filter(&w, f, c.n, inputs, outputs);
    /* Without a halo a device adds to rows of others, so sums of all rows are scattered. */
    if (!halo) walk_reduce_scatter(&w, POLAR, 2);
    walk_turn(&w, AZIMUTH, 3, 0, c.N);
    /* y [B, in, K, rows, longitudes] is kept for the backward pass, and mixed next. */
    charge_mixing(&w, c.mixing, 1);
    const enum error_code e = walk_to(&w, y);
    if (e || cost || c.mixing.points == 0 || !tiling->all.comm->device->backend->has_numbers) return e;
    /* out [B, out, points] = weight [out, in, K] times y [B, in, K, points]; each device mixes its own points. */
    struct views views = views_of(tiling->all.comm->device);
    const double *const from = view_read(&views, y).data, *const with = view_read(&views, weight).data;
    mixing_forward(c.mixing, from, with, view_write(&views, out).data);
    views_end(&views);
    return OK;
}

/* This device's part of the sum for d_weight; and d_y. */
static void mix_backward(const struct tiling *tiling, const struct call *call, struct tensor y, struct tensor weight,
                         struct tensor d_out, struct tensor d_y, struct tensor d_weight)
{
    struct views views = views_of(tiling->all.comm->device);
    if (!tiling->all.comm->device->backend->has_numbers) return;
    const double *const from = view_read(&views, y).data, *const with = view_read(&views, weight).data,
                 *const slope = view_read(&views, d_out).data;
    double *const d_from = view_write(&views, d_y).data, *const d_with = view_write(&views, d_weight).data;
    mixing_backward(call->mixing, from, with, slope, d_from, d_with);
    views_end(&views);
}

enum error_code spatial_convolve_backward(struct tiling *tiling, const struct spatial_convolution *convolution,
                                          struct tensor y, struct tensor weight, struct tensor d_out, struct tensor d_x,
                                          struct tensor d_weight, struct account *cost, struct error *err)
{
    const struct filter *const f = convolution->filter;
    const struct call c = convolution_call_of(tiling, convolution);
    const bool halo = convolution->form == HALO;
    const struct range inputs = halo ? c.wide : c.own, outputs = halo ? c.own : c.all;
    const struct collective sum = { .in = d_weight.data, .out = d_weight.data, .reduction = SUM, .dtype = F64,
                                    .count = convolution->out * convolution->in / convolution->groups * f->K };
    struct walk w = walk_from(tiling, cost, SIZE(c.N, f->K, c.own.count, tiling_part(tiling, AZIMUTH, f->nlon).count),
                              tensor_none, err);
    /* The gradient of the weights is a sum over all tiles. */
    if (cost) {
        account_add(cost, group_cost(&tiling->tiles, ALLREDUCE, NULL, &sum), 1);
    } else {
        w.at = walk_room(&w, walk_count(w.size)), w.owned = true;
        if (!w.e) mix_backward(tiling, &c, y, weight, d_out, w.at, d_weight);
        charge_mixing(&w, c.mixing, 2);
        if (!w.e) w.e = collective_run(&tiling->tiles, ALLREDUCE, NULL, &sum, err);
    }
    if (convolution->given) {
        w.size[0] = 0;                                      /* nothing to copy */
        return walk_to(&w, tensor_none);
    }
    walk_turn(&w, AZIMUTH, 0, 3, f->nlon);
    /* The transpose of a reduce-scatter is an allgather; that of the halo sends its rows home. */
    if (!halo) walk_allgather(&w, POLAR, 2, f->nlat);
    struct walk_views v = walk_compute(&w, SIZE(c.n, 1, inputs.count, f->nlon));
    /* [n, K, output rows, longitudes] becomes [n, 1, input rows, longitudes]. */
    if (v.to) filter_apply_transposed(f, c.n, inputs, v.to, outputs, v.from), walk_computed(&w, &v);
    charge_filter(&w, f, c.n, inputs, outputs);
    if (halo) walk_halo_home(&w, POLAR, 2, f->nlat, f->reach);
    walk_turn(&w, AZIMUTH, 3, 0, c.N);
    return walk_to(&w, d_x);
}

const struct spatial_scheme spatial_scheme_scattered = {
    .head = { .kind = SPATIAL_SCHEME, .equality = REASSOCIATES, .name = "convolution-scattered",
              .description = "local convolution; sums over rows of several devices are reduced and scattered",
              .source = "FourCastNet 3, arXiv:2507.12144; torch-harmonics",
              .volume = "two all-to-alls along azimuth; K (g-1)/g of a field's columns along polar",
              .memory = "K numbers for each point; what an exchange packs, and what arrives", .needs = "nothing" },
    .operation = CONVOLUTION, .form = SCATTERED,
};

const struct spatial_scheme spatial_scheme_halo = {
    .head = { .kind = SPATIAL_SCHEME, .equality = REASSOCIATES, .name = "convolution-halo",
              .description = "local convolution; rows within the filter's reach come from their owners",
              .source = "FourCastNet 3, arXiv:2507.12144; torch-harmonics",
              .volume = "two all-to-alls along azimuth; rows within reach of other tiles along polar",
              .memory = "K numbers for each point; what an exchange packs, and what arrives", .needs = "nothing" },
    .operation = CONVOLUTION, .form = HALO,
};
