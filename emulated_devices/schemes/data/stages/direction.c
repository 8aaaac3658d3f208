/* direction.c -- weights without gradients: moved copies for the passes, and a step along a random direction, which is
 * drawn again when needed, not kept.
 *
 * Source   S. Malladi et al., arXiv:2305.17333 (MeZO); blocks that are moved when they are needed, in slices on all
 *          devices: L. Wang et al., arXiv:2503.12668 (ZO2) and arXiv:2507.03211 (DistZO2)
 * Memory   the kept weights n/w, and a moved copy of one part of the model (of two while the next one is gathered); no
 *          gradients
 * Equals   ref/model/mezo.h: z of an element depends on its place in the whole parameter, so every device that has the
 *          element draws the same z
 * Called   model/zeroth.c sets the direction; data.c calls the stage for each part.  No call fails.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/device/compute.h"

/* Weights that are acquired are w + along z. */
struct direction { uint64_t key; double along; };

static struct direction *direction_own_state(const struct data_parallel *dp)
{
    return chain_state(dp, &stage_direction);
}

void data_set_direction(struct data_parallel *dp, uint64_t key, double along)
{
    *direction_own_state(dp) = (struct direction){ key, along };
    /* The list begins again, or goes on after the turn. */
    if (dp->at >= dp->uses) dp->at = 0;
    else if (dp->use[dp->at].pass == PASS_TURN) dp->at++;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* Whole parameters are stored one after another. */
static void move_unit(const struct data_parallel *dp, const struct direction *direction, struct unit *unit)
{
    for (int i = 0; i < unit->count; i++) {
        const struct parameter *p = &unit->parameter[i];
        device_move_along(dp->device, slice(unit->w, (struct interval){ p->place, layout_count(&p->layout) }),
                          (struct drawn){ &p->spec, &p->layout, 0 }, direction->key, direction->along);
    }
    dev_charge(dp->device, "move weights", unit->w, 2, 2);
    unit->moved = true;
}

/* Move a unit's weights when they are whole on the device. */
static enum error_code direction_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    int unit[PART_UNITS];
    (void)ahead, (void)err;
    for (int i = 0, n = units_at(dp, use, unit); i < n; i++)
        if (!dp->unit[unit[i]].moved) move_unit(dp, direction_own_state(dp), &dp->unit[unit[i]]);
    return OK;
}

/* ---- stepping ---------------------------------------------------------------------------------------------------- */

/* The direction is the gradient, and the slope multiplies it. */
static void step_along(const struct stretch *stretch)
{
    const struct drawn which = { &stretch->at.parameter->spec, &stretch->at.parameter->layout, stretch->at.piece };
    device_step_along(stretch->dp->device, stretch->dp->optimizer, stretch->master, which,
                      direction_own_state(stretch->dp)->key, stretch->step);
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static bool direction_takes_part(const struct data_parallel *dp) { return optimizer_draws(dp->optimizer); }

/* The step draws the direction again in place of a gradient. */
static enum error_code open_direction(struct data_parallel *dp, struct error *err)
{
    (void)err;
    dp->step_stretch = step_along;
    return OK;
}

const struct data_stage stage_direction = {
    .name = "direction", .takes_part = direction_takes_part, .state = sizeof (struct direction),
        .outline = open_direction,
    .acquire = direction_acquire,
};
