/* zeroth.c -- what an optimizer without a backward pass (model/zeroth.h) asks for, and who adds up its losses. */
#include "emulated_devices/plan/plan.h"
#include <string.h>

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

int plan_loss_members(const struct plan *p, int rank, bool other_side, int member[])
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
        const int n = plan_loss_members(p, i / 2, i % 2, member);
        if (member[0] != i / 2) continue;
        if (p->cluster) c.nodes = nodes_on(p->cluster, member, n);
        const char *needs = algorithm_refuses(a, n, &c);
        if (needs) return fail(err, ERR_PLAN, "--allreduce %s: needs %s; the devices that add up losses have P=%d", p->allreduce, needs, n);
    }
    return OK;
}

enum error_code plan_check_zeroth(struct plan *p, const struct schedule *s, struct error *err)
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
