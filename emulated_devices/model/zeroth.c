/* zeroth.c -- computes the losses on both sides of a step without a backward pass.  model/trainer.c calls on all
 * ranks together; model/trainer_open.c opens and model/trainer_cost.c predicts.  Each device may compute both sides
 * or one side.  Errors of passes and messages are passed on. */
#include "emulated_devices/model/zeroth.h"
#include "emulated_devices/model/trainer_parts.h"
#include "ref/model/mezo.h"
#include <math.h>

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static enum error_code open_group(struct group *group, const struct trainer *trainer, bool other_side,
                                  struct error *err)
{
    int member[MESH_MOST_LISTED];
    const int n = plan_loss_members(&trainer->plan, trainer->comm->rank, other_side, member);
    return group_of(group, trainer->comm, member, n, TRAFFIC_RESULT, 0, err);
}

enum error_code zeroth_open(struct trainer *trainer, struct error *err)
{
    const enum error_code e = open_group(&trainer->side, trainer, false, err);
    return e ? e : open_group(&trainer->sides, trainer, true, err);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Both groups sum the same two numbers; a device contributes 0 for a side that it does not compute. */
static enum error_code share_losses(struct trainer *trainer, double sums[2], struct error *err)
{
    const enum error_code e = allreduce(&trainer->side, sums, 2, F64, SUM, trainer->plan.allreduce, err);
    return e ? e : allreduce(&trainer->sides, sums, 2, F64, SUM, trainer->plan.allreduce, err);
}

enum error_code zeroth_losses(struct trainer *trainer, struct step_result *out, struct error *err)
{
    const double eps = trainer->plan.hyper.distance;
    double sums[2] = { 0 };
    enum error_code e = OK;
    for (int side = 0; side < 2 && !e; side++) {
        /* Each half of the copies computes one side. */
        if (trainer->plan.perturb == 2
            && side != plan_side(&trainer->plan, mesh_coordinate(&trainer->plan.mesh, trainer->comm->rank, DP)))
            continue;
        /* Weights that are gathered from here on are w + eps z, then w - eps z. */
        data_set_direction(&trainer->data, mezo_key(trainer->plan.seed, trainer->step), side == 0 ? eps : -eps);
        e = trainer_pass(trainer, &sums[side], err);
    }
    if (!e) e = share_losses(trainer, sums, err);
    const double counted = (double)(trainer->counted[0] ? trainer->counted[0] : 1);
    for (int side = 0; side < 2; side++) out->side[side] = sums[side] / counted;
    out->loss = (out->side[0] + out->side[1]) / 2;
    out->slope = mezo_slope(out->side, eps);
    out->loss_scale = 1;
    return e ? e : trainer_share_lost(trainer, fmax(sums[0], sums[1]), out, err);
}

struct account zeroth_cost(const struct trainer *trainer)
{
    const struct collective losses = { .count = 2, .dtype = F64, .reduction = SUM };
    struct account sum = group_cost(&trainer->side, ALLREDUCE, trainer->plan.allreduce, &losses);
    account_add(&sum, group_cost(&trainer->sides, ALLREDUCE, trainer->plan.allreduce, &losses), 1);
    return sum;
}
