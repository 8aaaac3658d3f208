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

static struct call call_of(const struct tiling *t, const struct spatial_score *s)
{
    const struct interval rows = tiling_part(t, POLAR, s->grid->nlat);
    const int64_t columns = tiling_part(t, AZIMUTH, s->grid->nlon).count;
    const struct interval points = tiling_part(t, ENSEMBLE, rows.count * columns);
    return (struct call){ .crps = { s->members, s->channels, points.count, s->alpha }, .points = points,
                          .columns = columns, .first_row = rows.first, .all = rows.count * columns };
}

/* Observations and areas of these points, on the host. */
static enum error_code take_points(struct call *c, const struct tiling *t, const struct spatial_score *s,
                                   struct tensor observed, struct error *err)
{
    const int64_t n = c->points.count;
    c->observed = calloc((size_t)(s->channels * n + 1), sizeof(double));
    c->area = calloc((size_t)n + 1, sizeof(double)), c->loss = calloc((size_t)s->channels + 1, sizeof(double));
    if (!c->observed || !c->area || !c->loss)
        return fail(err, ERR_MEMORY, "no memory for the score of %lld points", (long long)n);
    struct views views = views_of(t->all.comm->device);
    const double *const all = n ? view_read(&views, observed).data : NULL;
    for (int64_t p = 0; p < n; p++) {
        const int64_t at = c->points.first + p;
        /* A point's area is its row's weight, divided among the columns; the weights add to 2. */
        c->area[p] = s->grid->weight[c->first_row + at / c->columns] / (double)s->grid->nlon / 2;
        for (int64_t k = 0; k < s->channels; k++) c->observed[k * n + p] = all[k * c->all + at];
    }
    views_end(&views);
    return OK;
}

/* This device's part of the sum. */
static void score(struct call *c, const struct walk *w, struct tensor loss)
{
    struct views views = views_of(w->tiling->all.comm->device);
    if (c->points.count)
        crps_forward(c->crps, view_read(&views, tensor_1d(w->at.data, F64, walk_count(w->size))).data, c->observed,
                     c->area, c->loss);
    views_end(&views);
    device_copy(w->tiling->all.comm->device, loss.data, c->loss, (uint64_t)c->crps.channels * sizeof(double));
}

enum error_code spatial_crps(struct tiling *t, const struct spatial_score *s, struct tensor forecast,
                             struct tensor observed, struct tensor loss, struct tensor d_loss, struct tensor d_forecast,
                             struct account *cost, struct error *err)
{
    struct call c = call_of(t, s);
    const struct collective sum = { .in = loss.data, .out = loss.data, .count = s->channels, .dtype = F64,
                                    .reduction = SUM };
    const bool backward = d_forecast.data != NULL;
    struct walk w = walk_from(t, cost, SIZE(tiling_part(t, ENSEMBLE, s->members).count, s->channels, 1, c.all),
                              forecast, err);
    if (!cost) w.e = take_points(&c, t, s, observed, err);
    /* Points are exchanged for members: a score needs all members of a point. */
    walk_turn(&w, ENSEMBLE, 3, 0, s->members);
    if (!w.e && !cost) score(&c, &w, loss);
    if (cost) account_add(cost, group_cost(&t->all, ALLREDUCE, NULL, &sum), 1);
    else if (!w.e) w.e = collective_run(&t->all, ALLREDUCE, NULL, &sum, err);
    if (backward) {
        struct walk_views v = walk_compute(&w, SIZE(s->members, s->channels, 1, c.points.count));
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
