/* zeroth.c -- checks for an optimizer without a backward pass (model/zeroth.h), and the groups that sum its losses. */
#include "emulated_devices/plan/plan.h"

static enum error_code check_perturb(struct plan *p, struct error *err)
{
    if (p->perturb == 0) p->perturb = 1;
    if (p->perturb == 1) return OK;
    if (p->perturb != 2) return fail(err, ERR_PLAN, "--perturb %d: there are two sides; 1 or 2", p->perturb);
    if (p->mesh.size[DP] % 2 != 0)
        return fail(err, ERR_PLAN, "--perturb 2: half of the copies make each pass; --dp %d must be even",
                    p->mesh.size[DP]);
    return OK;
}

int plan_loss_members(const struct plan *p, int rank, bool other_side, int member[])
{
    const int dp = mesh_coordinate(&p->mesh, rank, DP);
    int n = 0;
    if (other_side)
        for (int side = 0; side < p->perturb; side++)
            member[n++] = mesh_neighbour(&p->mesh, rank, DP, side * plan_parts(p) + dp % plan_parts(p));
    else
        for (int r = 0; r < p->mesh.devices; r++)
            if (plan_side(p, mesh_coordinate(&p->mesh, r, DP)) == plan_side(p, dp)) member[n++] = r;
    return n;
}

static enum error_code check_allreduce(const struct plan *p, struct error *err)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, p->allreduce);
    int member[MESH_MOST_DEVICES];
    for (int i = 0; i < 2 * p->mesh.devices && a; i++) {
        struct collective c = { .count = 2, .dtype = F64, .reduction = SUM };
        const int n = plan_loss_members(p, i / 2, i % 2, member);
        if (member[0] != i / 2) continue;
        if (p->cluster) c.nodes = nodes_on(p->cluster, member, n);
        const char *needs = algorithm_refuses(a, n, &c);
        if (needs)
            return fail(err, ERR_PLAN, "--allreduce %s: needs %s; the devices that add up losses have P=%d",
                        p->allreduce, needs, n);
    }
    return OK;
}

enum error_code plan_check_zeroth(struct plan *p, struct error *err)
{
    const enum error_code e = check_perturb(p, err);
    if (e || !optimizer_draws(p->optimizer)) return e;
    if (!(p->hyper.distance > 0))
        return fail(err, ERR_PLAN, "--mezo-eps %g: losses are taken so far from the weights; 1e-3 is usual",
                    p->hyper.distance);
    return check_allreduce(p, err);
}
