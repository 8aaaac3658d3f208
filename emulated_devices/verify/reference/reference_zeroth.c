/* reference_zeroth.c -- the one-device run and its twin without a backward pass: both losses, the slope, and slope z as
 * gradients. */
#include "emulated_devices/verify/reference/reference.h"
#include "ref/model/mezo.h"
#include <math.h>
#include <string.h>

static double distance_of(const struct reference *r) { return r->plan->hyper.distance; }
static uint64_t key_of(const struct reference *r) { return mezo_key(r->plan->seed, r->step); }

static enum error_code loss_on(const struct reference *r, struct serial_run *run, int side, struct error *err)
{
    const double eps = distance_of(r);
    run->model.seed = dropout_seed(r->plan->seed, r->step);
    reference_pack(r, run);
    const enum error_code e = transformer_loss_along(&run->model, key_of(r), side == 0 ? eps : -eps, r->ids,
                                                     r->counting, r->plan->B, r->plan->S, &run->side[side], err);
    run->model.packed = NULL;
    return e;
}

static void find_slope(const struct reference *r, struct serial_run *run)
{
    run->slope = mezo_slope(run->side, distance_of(r));
    run->loss = (run->side[0] + run->side[1]) / 2;
    run->norm = fabs(run->slope);
}

enum error_code reference_losses(struct reference *r, struct error *err)
{
    enum error_code e = OK;
    memcpy(r->counting, r->labels, (size_t)(r->plan->B * r->plan->S) * sizeof *r->counting);
    for (int side = 0; side < 2 && !e; side++) {
        e = loss_on(r, &r->truth, side, err);
        if (!e) e = loss_on(r, &r->twin, side, err);
        if (!e) r->side_spread[side] = reference_spread(r);
    }
    if (e) return e;
    r->counted = r->truth.model.counted;
    find_slope(r, &r->truth);
    find_slope(r, &r->twin);
    return OK;
}

void reference_take_sides(struct reference *r, const double side[2])
{
    memcpy(r->truth.side, side, sizeof r->truth.side);
    find_slope(r, &r->truth);
    transformer_gradients_along(&r->truth.model, key_of(r), r->truth.slope);
    transformer_gradients_along(&r->twin.model, key_of(r), r->truth.slope + reference_slope_bound(r));
    r->took = true;
}

double reference_side_bound(const struct reference *r, int side)
{
    return reference_mean_bound(r, r->side_spread[side], r->truth.side[side]);
}

double reference_slope_bound(const struct reference *r)
{
    const double sizes = fabs(r->truth.side[0]) + fabs(r->truth.side[1]);
    return dtype_unit(F64) * (sizes / (2 * distance_of(r)) + 2 * fabs(r->truth.slope));
}
