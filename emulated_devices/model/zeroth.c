#include "emulated_devices/model/zeroth.h"
#include "ref/model/mezo.h"
#include <string.h>

/* ---- what fits --------------------------------------------------------------------------------------------------------- */

static enum error_code check_perturb(struct plan *p, struct error *err)
{
    if (p->perturb == 0) p->perturb = 1;
    if (p->perturb == 1) return OK;
    if (p->perturb != 2) return fail(err, ERR_PLAN, "--perturb %d: there are two sides; 1 or 2", p->perturb);
    if (!p->optimizer->forward_only)
        return fail(err, ERR_PLAN, "--perturb 2: is for --optimizer mezo; %s has gradients", p->optimizer->name);
    if (p->mesh.size[DP] % 2 != 0)
        return fail(err, ERR_PLAN, "--perturb 2: half of the copies make each pass; --dp %d must be even", p->mesh.size[DP]);
    return OK;
}

/* Whoever keeps weights steps them: there is nothing else to share. */
static enum error_code check_data(const struct plan *p, struct error *err)
{
    struct shards s;
    const enum error_code e = data_shards(&s, &p->data, p->mesh.size[DP], 0, err);
    if (e) return e;
    if (s.weights != s.optimizer)
        return fail(err, ERR_PLAN, "--data-parallel %s: shares gradients or optimizer state, and --optimizer %s has none; ddp, zero3, fsdp, hsdp and mics keep and step the same",
                    p->data.scheme, p->optimizer->name);
    if (p->data.keep) return fail(err, ERR_PLAN, "--reshard-after-forward no: there is no backward pass to keep weights for with --optimizer %s", p->optimizer->name);
    if (p->data.reduce_scatter)
        return fail(err, ERR_PLAN, "--reduce-scatter %s: --optimizer %s has no gradients to reduce", p->data.reduce_scatter, p->optimizer->name);
    if (p->data.narrow_gradients)
        return fail(err, ERR_PLAN, "--grad-dtype %s: --optimizer %s has no gradients", dtype_name(p->dtype), p->optimizer->name);
    return OK;
}

/* Who adds up losses with a device: those of its side, or the one that stands where it does on the other.  @return how many. */
static int members_of(const struct plan *p, int rank, bool other_side, int member[])
{
    const int dp = mesh_coordinate(&p->mesh, rank, DP);
    int n = 0;
    if (other_side)
        for (int side = 0; side < p->perturb; side++) member[n++] = mesh_neighbour(&p->mesh, rank, DP, side * plan_parts(p) + dp % plan_parts(p));
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
        const int n = members_of(p, i / 2, i % 2, member);
        if (member[0] != i / 2) continue;
        if (p->cluster) c.nodes = nodes_on(p->cluster, member, n);
        const char *needs = algorithm_refuses(a, n, &c);
        if (needs) return fail(err, ERR_PLAN, "--allreduce %s: needs %s; the devices that add up losses have P=%d", p->allreduce, needs, n);
    }
    return OK;
}

enum error_code zeroth_check(struct plan *p, const struct schedule *s, struct error *err)
{
    const char *const name = p->optimizer->name;
    enum error_code e = check_perturb(p, err);
    if (e || !p->optimizer->forward_only) return e;
    if (!(p->hyper.distance > 0)) return fail(err, ERR_PLAN, "--mezo-eps %g: losses are taken so far from the weights; 1e-3 is usual", p->hyper.distance);
    if (p->recompute && strcmp(p->recompute, "none") != 0)
        return fail(err, ERR_PLAN, "--recompute %.80s: --optimizer %s has no backward pass to compute activations again for", p->recompute, name);
    if (p->hyper.clip > 0) return fail(err, ERR_PLAN, "--clip %g: --optimizer %s has no gradients to clip", p->hyper.clip, name);
    if (p->loss_scale > 0) return fail(err, ERR_PLAN, "--loss-scale %g: --optimizer %s has no gradients that could underflow", p->loss_scale, name);
    if (data_quantises(&p->data))
        return fail(err, ERR_PLAN, "--quantize-%s: --optimizer %s %s", p->data.quantise_weights.bits ? "weights" : "gradients", name,
                    p->data.quantise_weights.bits ? "moves weights by less than a code can say" : "has no gradients");
    if (p->updates > 1 || s->weight_versions > 1)
        return fail(err, ERR_PLAN, "--schedule %s: steps the weights in mid-stream, by gradients; --optimizer %s steps once, after both losses", p->schedule, name);
    e = check_data(p, err);
    return e ? e : check_allreduce(p, err);
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

/* Counted as of all devices. */
static enum error_code open_group(struct group *g, const struct trainer *t, bool other_side, struct error *err)
{
    int member[MESH_MOST_DEVICES];
    const int n = members_of(&t->plan, t->comm->rank, other_side, member);
    return group_of(g, t->comm, member, n, 0, err);
}

enum error_code zeroth_open(struct trainer *t, struct error *err)
{
    const enum error_code e = open_group(&t->side, t, false, err);
    return e ? e : open_group(&t->sides, t, true, err);
}

/* ---- a step -------------------------------------------------------------------------------------------------------------- */

/* Both groups add the same two numbers: of a side that a device does not compute, zero. */
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
        if (t->plan.perturb == 2 && side != plan_side(&t->plan, t->dp.rank)) continue;
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

struct collective_cost zeroth_cost(const struct trainer *t)
{
    const struct collective losses = { .count = 2, .dtype = F64, .reduction = SUM };
    const struct collective_cost one = group_cost(&t->side, ALLREDUCE, t->plan.allreduce, &losses);
    const struct collective_cost two = group_cost(&t->sides, ALLREDUCE, t->plan.allreduce, &losses);
    return (struct collective_cost){ .messages = one.messages + two.messages, .bytes = one.bytes + two.bytes, .additions = one.additions + two.additions };
}
