/* experts.c -- which device has which experts: the arrangement of a stage's devices as copies x ep x etp. */
#include "emulated_devices/plan/plan.h"
#include <stdio.h>

/* "--ep 4", or "--ep 4 x --etp 2". */
static void name_expert_flags(const struct plan *p, char *text, size_t room)
{
    if (plan_etp(p) > 1) snprintf(text, room, "--ep %d x --etp %d", plan_ep(p), plan_etp(p));
    else snprintf(text, room, "--ep %d", plan_ep(p));
}

static enum error_code check_copying(const struct plan *p, const struct expert_scheme *s, struct error *err)
{
    const struct expert_owners *o = p->owners;
    if ((p->copying.slots > 0 || p->copying.top > 0 || p->copying.again || o) && !s->copies)
        return fail(err, ERR_PLAN, "%s: --dispatch %s copies no experts; fssdp does",
                    p->copying.slots ? "--copies" : p->copying.top ? "--copies-to-all" : o ? "--owners"
                                     : "--copy-again", s->head.name);
    if (o && (o->parts != plan_ep(p) || o->L != p->model.L || o->E != p->model.mixture.E))
        return fail(err, ERR_PLAN, "--owners: the file is of %lld layers of %lld experts in %d parts, not of %lld of "
                    "%lld in %d", (long long)o->L, (long long)o->E, o->parts, (long long)p->model.L,
                    (long long)p->model.mixture.E, plan_ep(p));
    return OK;
}

/* Devices that share the experts of a layer train together: neighbours, in one replica. */
static enum error_code check_replicas(const struct plan *p, const char *flags, struct error *err)
{
    const int sharing = plan_ep(p) * plan_etp(p), cp = p->mesh.size[CP];
    struct shards s;
    int group = cp;
    if (!plan_cuts_experts(p) || plan_shards(&s, p, 0, false, NULL) || !s.apart) return OK;
    const int own = s.optimizer * p->mesh.size[TP];
    if (own % sharing == 0) return OK;
    while (group * p->mesh.size[TP] % sharing != 0) group += cp;
    if (s.P % group != 0 || group == s.P)
        return fail(err, ERR_PLAN, "%s: cuts experts over devices that train together, and a replica of "
                    "--data-parallel %s has %d in a stage; they must divide them", flags, p->data.scheme, own);
    return fail(err, ERR_PLAN, "%s: cuts experts over devices that train together, and a replica of --data-parallel %s "
                "has %d in a stage; --shard-group %d would do", flags, p->data.scheme, own, group);
}

enum error_code plan_check_experts(const struct plan *p, struct error *err)
{
    const struct expert_scheme *s;
    enum error_code e = expert_scheme_find(&s, p->dispatch, err);
    if (e) return e;
    char flags[64];
    name_expert_flags(p, flags, sizeof flags);
    if (plan_stage_devices(p) % (plan_ep(p) * plan_etp(p)) != 0)
        return fail(err, ERR_PLAN, "%s: must be a divisor of the %d devices of a stage, --dp x --cp x --tp: experts "
                    "have the same stages as attention", flags, plan_stage_devices(p));
    for (int rank = 0; rank < p->mesh.devices; rank++) {
        const struct expert_parallel share = plan_expert_share(p, NULL, rank);
        const char *needs = s->refuses(&share, &p->model);
        if (needs) return fail(err, ERR_PLAN, "%s: --dispatch %s needs %s", flags, s->head.name, needs);
    }
    if (plan_ep(p) * plan_etp(p) > 1 && p->model.mlp != MLP_MIXTURE)
        return fail(err, ERR_PLAN, "%s: --model %s has no experts", flags, p->model.name);
    if (p->degree >= 0 && !s->has_degrees)
        return fail(err, ERR_PLAN, "--degree %d: --dispatch %s has no degrees; tutel has", p->degree, s->head.name);
    if (plan_etp(p) > p->model.F)
        return fail(err, ERR_PLAN, "--etp %d: an expert has F=%lld columns; etp can be at most that", p->etp,
                    (long long)p->model.F);
    if ((e = check_replicas(p, flags, err)) != OK) return e;
    struct shards of_experts;
    struct error why;
    if (plan_cuts_experts(p) && plan_shards(&of_experts, p, 0, true, &why))
        return fail(err, why.code, "%s: leaves %d devices with the same experts: %s", flags, plan_expert_copies(p),
                    why.text);
    e = check_copying(p, s, err);
    return e ? e : plan_check_affinity(p, err);
}

bool plan_cuts_experts(const struct plan *p)
{
    const struct expert_scheme *s;
    return p->model.mlp == MLP_MIXTURE && !expert_scheme_find(&s, p->dispatch, NULL) && s->cuts_experts;
}

bool plan_has_expert(const struct plan *p, int rank, const struct param_spec *s)
{
    const int place = plan_expert_place(p, rank, EXPERT_PARTS);
    const struct interval own = block_at(p->model.mixture.E, plan_ep(p), place);
    if (!plan_cuts_experts(p) || s->expert < 0) return true;
    if (p->owners) return p->owners->member[s->layer * p->owners->E + s->expert] == place;
    return s->expert >= own.first && s->expert < interval_end(own);
}

/* Neighbours along an axis of the experts are so many ranks apart. */
static int expert_stride(const struct plan *p, enum expert_axis axis)
{
    return axis == EXPERT_SLICES ? 1 : axis == EXPERT_PARTS ? plan_etp(p) : plan_etp(p) * plan_ep(p);
}

int plan_expert_size(const struct plan *p, enum expert_axis axis)
{
    return axis == EXPERT_SLICES ? plan_etp(p) : axis == EXPERT_PARTS ? plan_ep(p)
         : plan_stage_devices(p) / (plan_etp(p) * plan_ep(p));
}

int plan_expert_place(const struct plan *p, int rank, enum expert_axis axis)
{
    return rank % plan_stage_devices(p) / expert_stride(p, axis) % plan_expert_size(p, axis);
}

int plan_expert_members(const struct plan *p, int rank, enum expert_axis axis, int member[])
{
    const int n = plan_expert_size(p, axis), stride = expert_stride(p, axis);
    for (int i = 0; i < n; i++) member[i] = rank + (i - plan_expert_place(p, rank, axis)) * stride;
    return n;
}

struct expert_parallel plan_expert_share(const struct plan *p, const struct tensor_parallel *tp, int rank)
{
    int member[MESH_MOST_DEVICES];
    struct nodes nodes = { .member = member };
    const int n = plan_expert_members(p, rank, EXPERT_PARTS, member);
    if (p->cluster) nodes = nodes_on(p->cluster, member, n);
    struct expert_parallel ep = { .tp = tp, .devices = n, .rank = plan_expert_place(p, rank, EXPERT_PARTS),
                                  .slices = plan_etp(p), .slice = plan_expert_place(p, rank, EXPERT_SLICES),
                                  .node = nodes_even(nodes, n), .degree = p->degree,
                                  .copying = p->copying, .hides = !p->experts_wait,
                                  .owner = p->owners ? p->owners->member : NULL };
    expert_scheme_find(&ep.scheme, p->dispatch, NULL);
    return ep;
}
