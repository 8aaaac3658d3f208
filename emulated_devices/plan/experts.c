/* experts.c -- which device has which experts: the arrangement of a stage's devices as copies x ep x etp.
 *
 * The trainer and the expert schemes ask for places and members; plan_check for refusals.  All but the check is
 * arithmetic of ranks.  Files of model/, plan/, run/, train/ and other rooms call these functions.  plan_check gets
 * ERR_PLAN for an arrangement that cannot be.
 */
#include "emulated_devices/plan/plan.h"
#include "ref/model/kinds.h"
#include <stdio.h>

/* "--ep 4", or "--ep 4 x --etp 2". */
static void name_expert_flags(const struct plan *plan, char *text, size_t room)
{
    if (plan_etp(plan) > 1) snprintf(text, room, "--ep %d x --etp %d", plan_ep(plan), plan_etp(plan));
    else snprintf(text, room, "--ep %d", plan_ep(plan));
}

/* Copies of experts need a scheme that copies, and a file of owners must be of this model and ep. */
static enum error_code check_copying(const struct plan *plan, const struct expert_scheme *scheme, struct error *err)
{
    const struct expert_owners *o = plan->owners;
    if ((plan->copying.slots > 0 || plan->copying.top > 0 || plan->copying.again || o) && !scheme->copies)
        return fail(err, ERR_PLAN, "%s: --dispatch %s copies no experts; fssdp does",
                    plan->copying.slots ? "--copies" : plan->copying.top ? "--copies-to-all" : o ? "--owners"
                                     : "--copy-again", scheme->head.name);
    if (o && (o->parts != plan_ep(plan) || o->L != plan->model.L || o->E != plan->model.mixture.E))
        return fail(err, ERR_PLAN, "--owners: the file is of %lld layers of %lld experts in %d parts, not of %lld of "
                    "%lld in %d", (long long)o->L, (long long)o->E, o->parts, (long long)plan->model.L,
                    (long long)plan->model.mixture.E, plan_ep(plan));
    return OK;
}

/* Devices that share the experts of a layer train together: neighbours, in one replica. */
static enum error_code check_replicas(const struct plan *plan, const char *flags, struct error *err)
{
    const int sharing = plan_ep(plan) * plan_etp(plan), cp = plan->mesh.size[CP];
    struct shards s;
    /* group: the smallest shard group that the devices sharing experts divide, for the message. */
    int group = cp;
    if (!plan_cuts_experts(plan) || plan_shards(&s, plan, 0, false, NULL) || !s.apart) return OK;
    const int own = s.optimizer * plan->mesh.size[TP];
    if (own % sharing == 0) return OK;
    while (group * plan->mesh.size[TP] % sharing != 0) group += cp;
    if (s.P % group != 0 || group == s.P)
        return fail(err, ERR_PLAN, "%s: cuts experts over devices that train together, and a replica of "
                    "--data-parallel %s has %d in a stage; they must divide them", flags, plan->data.scheme, own);
    return fail(err, ERR_PLAN, "%s: cuts experts over devices that train together, and a replica of --data-parallel %s "
                "has %d in a stage; --shard-group %d would do", flags, plan->data.scheme, own, group);
}

enum error_code plan_check_experts(const struct plan *plan, struct error *err)
{
    const struct expert_scheme *s;
    enum error_code e = expert_scheme_find(&s, plan->dispatch, err);
    if (e) return e;
    char flags[64];
    name_expert_flags(plan, flags, sizeof flags);
    if (plan_stage_devices(plan) % (plan_ep(plan) * plan_etp(plan)) != 0)
        return fail(err, ERR_PLAN, "%s: must be a divisor of the %d devices of a stage, --dp x --cp x --tp: experts "
                    "have the same stages as attention", flags, plan_stage_devices(plan));
    /* Every device is asked, because nodes may differ from device to device; without parts one tells for all. */
    const int asked = plan_ep(plan) * plan_etp(plan) > 1 ? plan->mesh.devices : 1;
    for (int rank = 0; rank < asked; rank++) {
        const struct expert_parallel share = plan_expert_share(plan, NULL, rank);
        const char *needs = s->refuses(&share, &plan->model);
        if (needs) return fail(err, ERR_PLAN, "%s: --dispatch %s needs %s", flags, s->head.name, needs);
    }
    if (plan_ep(plan) * plan_etp(plan) > 1 && plan->model.mlp != MLP_MIXTURE)
        return fail(err, ERR_PLAN, "%s: --model %s has no experts", flags, plan->model.name);
    if (plan->degree >= 0 && !s->has_degrees)
        return fail(err, ERR_PLAN, "--degree %d: --dispatch %s has no degrees; tutel has", plan->degree, s->head.name);
    if (plan->row_parts > 0 && !s->has_parts)
        return fail(err, ERR_PLAN, "--row-parts %d: --dispatch %s sends all rows at once; tutel has parts",
                    plan->row_parts, s->head.name);
    if (plan_etp(plan) > plan->model.F)
        return fail(err, ERR_PLAN, "--etp %d: an expert has F=%lld columns; etp can be at most that", plan->etp,
                    (long long)plan->model.F);
    if ((e = check_replicas(plan, flags, err)) != OK) return e;
    struct shards of_experts;
    struct error why;
    if (plan_cuts_experts(plan) && plan_shards(&of_experts, plan, 0, true, &why))
        return fail(err, why.code, "%s: leaves %d devices with the same experts: %s", flags, plan_expert_copies(plan),
                    why.text);
    e = check_copying(plan, s, err);
    return e ? e : plan_check_affinity(plan, err);
}

bool plan_cuts_experts(const struct plan *plan)
{
    const struct expert_scheme *s;
    return plan->model.mlp == MLP_MIXTURE && !expert_scheme_find(&s, plan->dispatch, NULL) && s->cuts_experts;
}

bool plan_has_expert(const struct plan *plan, int rank, const struct param_spec *spec)
{
    const int place = plan_expert_place(plan, rank, EXPERT_PARTS);
    /* Experts lie in equal ranges, unless a file of owners says for each expert who has it. */
    const struct interval own = block_at(plan->model.mixture.E, plan_ep(plan), place);
    if (!plan_cuts_experts(plan) || spec->expert < 0) return true;
    if (plan->owners) return plan->owners->member[spec->layer * plan->owners->E + spec->expert] == place;
    return spec->expert >= own.first && spec->expert < interval_end(own);
}

/* Neighbours along an axis of the experts are so many ranks apart. */
static int expert_stride(const struct plan *plan, enum expert_axis axis)
{
    return axis == EXPERT_SLICES ? 1 : axis == EXPERT_PARTS ? plan_etp(plan) : plan_etp(plan) * plan_ep(plan);
}

int plan_expert_size(const struct plan *plan, enum expert_axis axis)
{
    return axis == EXPERT_SLICES ? plan_etp(plan) : axis == EXPERT_PARTS ? plan_ep(plan)
         : plan_stage_devices(plan) / (plan_etp(plan) * plan_ep(plan));
}

int plan_expert_place(const struct plan *plan, int rank, enum expert_axis axis)
{
    return (rank - plan->mesh.first) % plan_stage_devices(plan) / expert_stride(plan, axis)
        % plan_expert_size(plan, axis);
}

int plan_expert_members(const struct plan *plan, int rank, enum expert_axis axis, int member[])
{
    const int n = plan_expert_size(plan, axis), stride = expert_stride(plan, axis);
    for (int i = 0; i < n; i++) member[i] = rank + (i - plan_expert_place(plan, rank, axis)) * stride;
    return n;
}

struct expert_parallel plan_expert_share(const struct plan *plan, const struct tensor_parallel *tp, int rank)
{
    int member[MESH_MOST_LISTED];
    /* Without a cluster all devices are on one node. */
    struct nodes nodes = { .member = member };
    const int n = plan_expert_members(plan, rank, EXPERT_PARTS, member);
    if (plan->cluster) nodes = nodes_on(plan->cluster, member, n);
    struct expert_parallel ep = { .tp = tp, .devices = n, .rank = plan_expert_place(plan, rank, EXPERT_PARTS),
                                  .slices = plan_etp(plan), .slice = plan_expert_place(plan, rank, EXPERT_SLICES),
                                  .node = nodes_even(nodes, n), .degree = plan->degree, .parts = plan->row_parts,
                                  .copying = plan->copying, .hides = !plan->experts_wait,
                                  .owner = plan->owners ? plan->owners->member : NULL };
    expert_scheme_find(&ep.scheme, plan->dispatch, NULL);
    return ep;
}
