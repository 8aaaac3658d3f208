/* zeroth.c -- checks for an optimizer without a backward pass (model/zeroth.h), and the groups that sum its losses.
 *
 * plan_check calls plan_check_zeroth; the model asks plan_loss_members for its groups.  ERR_PLAN names the flag.
 */
#include "emulated_devices/plan/plan.h"

/* A side for each half of the copies needs an even dp.  Without a value each copy computes both sides. */
static enum error_code check_perturb(struct plan *plan, struct error *err)
{
    if (plan->perturb == 0) plan->perturb = 1;
    if (plan->perturb == 1) return OK;
    if (plan->layers.count > 0)
        return fail(err, ERR_PLAN, "--perturb 2: half of the copies make each pass; sections have other numbers of "
                    "copies, and all of them make both; leave --perturb out");
    if (plan->perturb != 2) return fail(err, ERR_PLAN, "--perturb %d: there are two sides; 1 or 2", plan->perturb);
    if (plan->mesh.size[DP] % 2 != 0)
        return fail(err, ERR_PLAN, "--perturb 2: half of the copies make each pass; --dp %d must be even",
                    plan->mesh.size[DP]);
    return OK;
}

int plan_loss_members(const struct plan *plan, int rank, bool other_side, int member[])
{
    const int dp = mesh_coordinate(&plan->mesh, rank, DP);
    int n = 0;
    /* The group across the sides has the devices of the same place in both halves of the copies. */
    if (other_side)
        for (int side = 0; side < plan->perturb; side++)
            member[n++] = mesh_neighbour(&plan->mesh, rank, DP, side * plan_parts(plan) + dp % plan_parts(plan));
    else
        for (int r = 0; r < plan->mesh.devices; r++)
            if (plan_side(plan, mesh_coordinate(&plan->mesh, r, DP)) == plan_side(plan, dp)) member[n++] = r;
    return n;
}

static enum error_code check_allreduce(const struct plan *plan, struct error *err)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, plan->allreduce);
    int member[MESH_MOST_LISTED];
    /* Each device is in two groups, of its side and across sides; the group's first member checks for all. */
    for (int i = 0; i < 2 * plan->mesh.devices && a; i++) {
        struct collective c = { .count = 2, .dtype = F64, .reduction = SUM };
        const int n = plan_loss_members(plan, i / 2, i % 2, member);
        if (member[0] != i / 2) continue;
        if (plan->cluster) c.nodes = nodes_on(plan->cluster, member, n);
        const char *needs = algorithm_refuses(a, n, &c);
        if (needs)
            return fail(err, ERR_PLAN, "--allreduce %s: needs %s; the devices that add up losses have P=%d",
                        plan->allreduce, needs, n);
    }
    return OK;
}

enum error_code plan_check_zeroth(struct plan *plan, struct error *err)
{
    const enum error_code e = check_perturb(plan, err);
    if (e || !optimizer_draws(plan->optimizer)) return e;
    if (plan->mesh.devices > MESH_MOST_LISTED)
        return fail(err, ERR_PLAN, "--optimizer %s: losses are summed over lists of at most %d devices, not of %d",
                    plan->optimizer->name, MESH_MOST_LISTED, plan->mesh.devices);
    if (!(plan->hyper.distance > 0))
        return fail(err, ERR_PLAN, "--mezo-eps %g: losses are taken so far from the weights; 1e-3 is usual",
                    plan->hyper.distance);
    /* With sections the losses are summed as all results are. */
    return plan->layers.count > 0 ? OK : check_allreduce(plan, err);
}
