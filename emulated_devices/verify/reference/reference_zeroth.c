/* reference_zeroth.c -- the one-device run and its twin without a backward pass: both losses, the slope, and slope z as
 * gradients.
 *
 * reference.c and compare.c call, on rank 0. The only error is ERR_MEMORY of a pass.
 */
#include "emulated_devices/verify/reference/reference.h"
#include "ref/model/mezo.h"
#include <math.h>
#include <string.h>

/* With exact sums there is no twin.  Then the gradient is z, which the step multiplies by the slope, as devices do:
 * slope z, rounded on its own, would have other bits. */
static bool is_exact(const struct reference *reference) { return reference->plan->model.exact != SUMS_ROUND; }

static double distance_of(const struct reference *reference) { return reference->plan->hyper.distance; }
static uint64_t reference_zeroth_key_of(const struct reference *reference)
{
    return mezo_key(reference->plan->seed, reference->step);
}

/* Compute one run's loss at w + eps z (side 0) or w - eps z (side 1). Afterwards the weights are the old ones. */
static enum error_code loss_on(const struct reference *reference, struct serial_run *run, int side, struct error *err)
{
    const double eps = distance_of(reference);
    run->model.seed = dropout_seed(reference->plan->seed, reference->step);
    reference_pack(reference, run);
    const enum error_code e = transformer_loss_along(&run->model, reference_zeroth_key_of(reference),
                                                     side == 0 ? eps : -eps, reference->ids,
                                                     reference->counting, reference->plan->B, reference->plan->S,
                                                     &run->side[side], err);
    run->model.packed = NULL;
    return e;
}

/* slope = (side 0 - side 1) / (2 eps). The step's loss is the mean of both sides, and the norm is |slope|. */
static void find_slope(const struct reference *reference, struct serial_run *run)
{
    run->slope = mezo_slope(run->side, distance_of(reference));
    run->loss = (run->side[0] + run->side[1]) / 2;
    run->norm = fabs(run->slope);
}

enum error_code reference_losses(struct reference *reference, struct error *err)
{
    enum error_code e = OK;
    /* Such an optimizer has one step in a training step, so all labels count. */
    memcpy(reference->counting, reference->labels,
           (size_t)(reference->plan->B * reference->plan->S) * sizeof *reference->counting);
    for (int side = 0; side < 2 && !e; side++) {
        e = loss_on(reference, &reference->truth, side, err);
        if (!e && !is_exact(reference)) e = loss_on(reference, &reference->twin, side, err);
        if (!e && !is_exact(reference)) reference->side_spread[side] = reference_spread(reference);
    }
    if (e) return e;
    reference->counted = reference->truth.model.counted;
    find_slope(reference, &reference->truth);
    if (!is_exact(reference)) find_slope(reference, &reference->twin);
    return OK;
}

void reference_take_sides(struct reference *reference, const double side[2])
{
    memcpy(reference->truth.side, side, sizeof reference->truth.side);
    find_slope(reference, &reference->truth);
    transformer_gradients_along(&reference->truth.model, reference_zeroth_key_of(reference),
                                is_exact(reference) ? 1 : reference->truth.slope);
    reference->took = true;
    if (is_exact(reference)) return;
    /* The twin's slope is off by the whole bound, so the responses of the step show its effect. */
    transformer_gradients_along(&reference->twin.model, reference_zeroth_key_of(reference),
                                reference->truth.slope + reference_slope_bound(reference));
}

double reference_side_bound(const struct reference *reference, int side)
{
    return reference_mean_bound(reference, reference->side_spread[side], reference->truth.side[side]);
}

double reference_slope_bound(const struct reference *reference)
{
    /* bound = u ((|loss+| + |loss-|) / (2 eps) + 2 |slope|): rounding of two numbers, a difference and a quotient. */
    const double sizes = fabs(reference->truth.side[0]) + fabs(reference->truth.side[1]);
    return dtype_unit(F64) * (sizes / (2 * distance_of(reference)) + 2 * fabs(reference->truth.slope));
}
