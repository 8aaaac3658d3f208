#include "emulated_devices/model/zeroth.h"
#include "ref/model/mezo.h"

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static enum error_code open_group(struct group *g, const struct trainer *t, bool other_side, struct error *err)
{
    int member[MESH_MOST_DEVICES];
    const int n = plan_loss_members(&t->plan, t->comm->rank, other_side, member);
    return group_of(g, t->comm, member, n, TRAFFIC_RESULT, 0, err);
}

enum error_code zeroth_open(struct trainer *t, struct error *err)
{
    const enum error_code e = open_group(&t->side, t, false, err);
    return e ? e : open_group(&t->sides, t, true, err);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Both groups sum the same two numbers; a device contributes 0 for a side that it does not compute. */
static enum error_code share_losses(struct trainer *t, double sums[2], struct error *err)
{
    const enum error_code e = allreduce(&t->side, sums, 2, F64, SUM, t->plan.allreduce, err);
    return e ? e : allreduce(&t->sides, sums, 2, F64, SUM, t->plan.allreduce, err);
}

enum error_code zeroth_losses(struct trainer *t, struct step_result *out, struct error *err)
{
    const double eps = t->plan.hyper.distance;
    double sums[2] = { 0 };
    enum error_code e = OK;
    for (int side = 0; side < 2 && !e; side++) {
        /* Each half of the copies computes one side. */
        if (t->plan.perturb == 2 && side != plan_side(&t->plan, mesh_coordinate(&t->plan.mesh, t->comm->rank, DP)))
            continue;
        /* Weights that are gathered from here on are w + eps z, then w - eps z. */
        data_set_direction(&t->data, mezo_key(t->plan.seed, t->step), side == 0 ? eps : -eps);
        e = trainer_pass(t, &sums[side], err);
    }
    if (!e) e = share_losses(t, sums, err);
    const double counted = (double)(t->counted[0] ? t->counted[0] : 1);
    for (int side = 0; side < 2; side++) out->side[side] = sums[side] / counted;
    out->loss = (out->side[0] + out->side[1]) / 2;
    out->slope = mezo_slope(out->side, eps);
    out->loss_scale = 1;
    return e;
}

struct account zeroth_cost(const struct trainer *t)
{
    const struct collective losses = { .count = 2, .dtype = F64, .reduction = SUM };
    struct account sum = group_cost(&t->side, ALLREDUCE, t->plan.allreduce, &losses);
    account_add(&sum, group_cost(&t->sides, ALLREDUCE, t->plan.allreduce, &losses), 1);
    return sum;
}
