/* score.c -- the score of an ensemble over tiles, and its gradient.
 *
 * verify/cases/spatial.c runs the score beside ref/sphere/crps.h.  The call is collective over all devices of the
 * tiling.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/spatial/walk.h"
#include <stdlib.h>

#define SIZE(...) ((const int64_t[WALK_DIMS]){ __VA_ARGS__ })

/* The points of this device's tile that it scores, for all members. */
struct call {
    struct crps crps;
    struct interval points;             /* of the tile's */
    int64_t columns, first_row, all;    /* of the tile */
    double *observed, *area, *loss;     /* [channels, points], [points], [channels] */
};

/* The points of a tile are cut over the ensemble axis, so each device scores its points for all members. */
static struct call score_call_of(const struct tiling *tiling, const struct spatial_score *score)
{
    const struct interval rows = tiling_part(tiling, POLAR, score->grid->nlat);
    const int64_t columns = tiling_part(tiling, AZIMUTH, score->grid->nlon).count;
    const struct interval points = tiling_part(tiling, ENSEMBLE, rows.count * columns);
    return (struct call){ .crps = { score->members, score->channels, points.count, score->alpha }, .points = points,
                          .columns = columns, .first_row = rows.first, .all = rows.count * columns };
}

/* Observations and areas of these points, on the host. */
static enum error_code take_points(struct call *call, const struct tiling *tiling, const struct spatial_score *score,
                                   struct tensor observed, struct error *err)
{
    const int64_t n = call->points.count;
    call->observed = calloc((size_t)(score->channels * n + 1), sizeof(double));
    call->area = calloc((size_t)n + 1, sizeof(double)),
        call->loss = calloc((size_t)score->channels + 1, sizeof(double));
    if (!call->observed || !call->area || !call->loss)
        return fail(err, ERR_MEMORY, "no memory for the score of %lld points", (long long)n);
    struct views views = views_of(tiling->all.comm->device);
    const double *const all = n ? view_read(&views, observed).data : NULL;
    for (int64_t p = 0; p < n; p++) {
        const int64_t at = call->points.first + p;
        /* A point's area is its row's weight, divided among the columns; the weights add to 2. */
        call->area[p] = score->grid->weight[call->first_row + at / call->columns] / (double)score->grid->nlon / 2;
        for (int64_t k = 0; k < score->channels; k++) call->observed[k * n + p] = all[k * call->all + at];
    }
    views_end(&views);
    return OK;
}

/* This device's part of the sum. */
static void schemes_spatial_score(struct call *call, const struct walk *walk, struct tensor loss)
{
    struct views views = views_of(walk->tiling->all.comm->device);
    if (call->points.count)
        crps_forward(call->crps, view_read(&views, tensor_1d(walk->at.data, F64, walk_count(walk->size))).data,
                     call->observed, call->area, call->loss);
    views_end(&views);
    /* A device without points has a sum of 0. */
    device_copy(walk->tiling->all.comm->device, loss.data, call->loss, (uint64_t)call->crps.channels * sizeof(double));
}

enum error_code spatial_crps(struct tiling *tiling, const struct spatial_score *spatial_score, struct tensor forecast,
                             struct tensor observed, struct tensor loss, struct tensor d_loss, struct tensor d_forecast,
                             struct account *cost, struct error *err)
{
    struct call c = score_call_of(tiling, spatial_score);
    const struct collective sum = { .in = loss.data, .out = loss.data, .count = spatial_score->channels, .dtype = F64,
                                    .reduction = SUM };
    const bool backward = d_forecast.data != NULL;
    struct walk w = walk_from(tiling, cost, SIZE(tiling_part(tiling, ENSEMBLE, spatial_score->members).count,
                                                 spatial_score->channels, 1, c.all),
                              forecast, err);
    const bool computes = tiling->all.comm->device->backend->has_numbers;
    if (!cost && computes) w.e = take_points(&c, tiling, spatial_score, observed, err);
    /* Points are exchanged for members: a score needs all members of a point. */
    walk_turn(&w, ENSEMBLE, 3, 0, spatial_score->members);
    walk_charge(&w, "score", 3 * (double)(c.crps.members * (c.crps.members + 1) * c.crps.channels * c.points.count),
                c.crps.channels * c.points.count * (c.crps.members * (backward ? 2 : 1) + 1));
    /* loss [channels] is this device's part of the sum over points, until the all-reduce. */
    if (!w.e && !cost && computes) schemes_spatial_score(&c, &w, loss);
    if (cost) account_add(cost, group_cost(&tiling->all, ALLREDUCE, NULL, &sum), 1);
    else if (!w.e) w.e = collective_run(&tiling->all, ALLREDUCE, NULL, &sum, err);
    /* d_forecast [members, channels, points] comes from the local points; the way back exchanges members for points. */
    if (backward) {
        struct walk_views v = walk_compute(&w, SIZE(spatial_score->members, spatial_score->channels, 1,
                                                    c.points.count));
        if (v.to) {
            const double *const slope = view_read(&v.views, d_loss).data;
            crps_backward(c.crps, v.from, c.observed, c.area, slope, v.to);
            walk_computed(&w, &v);
        }
        walk_turn(&w, ENSEMBLE, 0, 3, c.all);
    }
    free(c.observed), free(c.area), free(c.loss);
    if (backward) return walk_to(&w, d_forecast);
    w.size[0] = 0;                                          /* nothing to copy */
    return walk_to(&w, tensor_none);
}

const struct spatial_scheme spatial_scheme_score = {
    .head = { .kind = SPATIAL_SCHEME, .equality = REASSOCIATES, .name = "score",
              .description = "the continuous ranked probability score of an ensemble, as a loss",
              .source = "FourCastNet 3, arXiv:2507.12144; makani",
              .volume = "an all-to-all of points for members each way; an all-reduce of a number for each channel",
              .memory = "what an exchange packs, and what arrives", .needs = "nothing" },
    .operation = SCORE,
};
