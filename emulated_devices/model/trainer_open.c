/* trainer_open.c -- a device's groups, schemes, parameters, stages, and the lists that stay the same in all steps. */
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/apart.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/zeroth.h"
#include "emulated_devices/schemes/data/tiles.h"
#include <stdlib.h>

/* A parameter of which this device has pieces. */
struct held_parameter { struct param_spec spec; int index, turn, tiles; bool first; };

/* Add this device's pieces of a parameter: one, or one per tile.  A tile is counted whole if any part of its
 * parameter is. */
static void make_pieces(struct trainer *t, const struct held_parameter *h)
{
    for (int tile = 0; tile < h->tiles; tile++) {
        struct parameter *p = &t->parameters.all[t->parameters.count++];
        *p = plan_piece(&t->plan, t->comm->rank, h->index, &h->spec, tile);
        p->holders = plan_holders(&t->plan, &t->schedule, &h->spec, NULL);
        const struct tensor_parallel tp = plan_share_of(&t->plan, t->comm->rank, &h->spec);
        const int64_t counted = tensor_counted(&tp, &h->spec);
        p->counted = !h->first ? 0 : h->tiles > 1 && counted > 0 ? layout_count(&p->layout) : counted;
    }
}

/* Its unit is numbered by part: 0; after those: 1; of experts that only some devices have, or that alone are on the
 * slow tier: 2 (units.h). */
static int turn_of(const struct trainer *t, const struct param_spec *s, int tiles)
{
    if (s->expert >= 0 && (plan_cuts_experts(&t->plan) || t->plan.data.offload_experts)) return 2;
    return tiles > 1 || (data_quantises(&t->plan.data) && tensor_copied(&t->tensor, s));
}

static bool holds(const struct trainer *t, int index, struct held_parameter *h)
{
    *h = (struct held_parameter){ .spec = trainer_spec(t, index), .index = index };
    h->tiles = tiles_of(&t->plan.data, &h->spec), h->turn = turn_of(t, &h->spec, h->tiles);
    return plan_holds(&t->plan, &t->schedule, t->comm->rank, &h->spec, &h->first);
}

/* The parameters of a block are all on the same stages, but for experts, which are at its end.
 * @return how many of a layer's parameters this device has pieces of. */
static int list_layer(const struct trainer *t, int layer, struct held_parameter *list)
{
    const int first = param_of_layer(&t->plan.model, layer), end = param_of_layer(&t->plan.model, layer + 1);
    const bool block = layer >= 0 && layer < t->plan.model.L;
    int n = 0;
    for (int i = first; i < end && !(block && n == 0 && i > first); i++) n += holds(t, i, &list[n]);
    return n;
}

/* @return how many, or -1: no memory. */
static int list_held(const struct trainer *t, struct held_parameter **list)
{
    int n = 0, room = 0;
    *list = NULL;
    for (int layer = -1; layer <= t->plan.model.L; layer++) {
        const int more = param_of_layer(&t->plan.model, layer + 1) - param_of_layer(&t->plan.model, layer);
        if (n + more > room) {
            struct held_parameter *grown = realloc(*list, sizeof **list * (size_t)(room = 2 * (n + more)));
            if (grown == NULL) return -1;
            *list = grown;
        }
        n += list_layer(t, layer, *list + n);
    }
    return n;
}

/* In the order of units. */
static enum error_code make_parameters(struct trainer *t, struct error *err)
{
    struct held_parameter *list;
    const int n = list_held(t, &list);
    size_t pieces = 0;
    for (int i = 0; i < n; i++) pieces += (size_t)list[i].tiles;
    t->parameters.all = n < 0 ? NULL : calloc(pieces + 1, sizeof *t->parameters.all);
    for (int turn = 0; turn < 3 && t->parameters.all; turn++)
        for (int i = 0; i < n; i++)
            if (turn == list[i].turn) make_pieces(t, &list[i]);
    free(list);
    return t->parameters.all ? OK : fail(err, ERR_MEMORY, "no memory for a list of parameters");
}

static enum error_code make_expert_groups(struct trainer *t, struct error *err)
{
    int member[MESH_MOST_DEVICES];
    int n = plan_expert_members(&t->plan, t->comm->rank, EXPERT_PARTS, member);
    enum error_code e = group_of(&t->ep, t->comm, member, n, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    n = plan_expert_members(&t->plan, t->comm->rank, EXPERT_SLICES, member);
    if (!e) e = group_of(&t->etp, t->comm, member, n, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    n = plan_expert_members(&t->plan, t->comm->rank, EXPERT_COPIES, member);
    if (!e && plan_cuts_experts(&t->plan))
        e = group_of(&t->same_experts, t->comm, member, n, TRAFFIC_DATA, AXIS_BIT(DP), err);
    return e;
}

static enum error_code make_groups(struct trainer *t, struct error *err)
{
    enum error_code e = group_world(&t->world, t->comm, err);
    if (!e) e = group_along(&t->dp, t->comm, &t->plan.mesh, TRAFFIC_DATA, AXIS_BIT(DP) | AXIS_BIT(CP), err);
    if (!e) e = group_along(&t->tp, t->comm, &t->plan.mesh, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    if (!e) e = group_along(&t->pp, t->comm, &t->plan.mesh, TRAFFIC_PIPELINE, AXIS_BIT(PP), err);
    if (!e) e = group_along(&t->cp, t->comm, &t->plan.mesh, TRAFFIC_ATTENTION, AXIS_BIT(CP), err);
    if (!e) e = make_expert_groups(t, err);
    return !e && draws(t) ? zeroth_open(t, err) : e;
}

static enum error_code make_schemes(struct trainer *t, struct error *err)
{
    const struct plan *p = &t->plan;
    enum error_code e = tensor_scheme_find(&t->tensor.scheme, p->tensor, err);
    if (!e) e = data_scheme_find(&t->data.scheme, p->data.scheme, err);
    if (!e) e = plan_schedule(p, &t->schedule, err);
    if (e) return e;
    if (forward_only(t)) schedule_keep_forwards(&t->schedule);
    t->tensor.config = &t->plan.model;
    t->tensor.device = t->device;
    t->tensor.allreduce = p->allreduce;
    t->tensor.S = plan_tensor_share(p, t->comm->rank).S;
    t->seams = plan_seams(p, &t->tensor, t->comm->rank);
    t->seams.cp.group = &t->cp, t->seams.cp.part = t->cp_part, t->seams.ep.group = &t->ep;
    t->seams.ep.along_etp = &t->etp;
    t->seams.ep.part = t->ep_part;
    t->tensor.wide_gradients = !p->data.narrow_gradients;
    e = tensor_open(&t->tensor, &t->tp, err);
    if (!e && t->seams.cp.scheme->open) e = t->seams.cp.scheme->open(&t->seams.cp, err);
    if (!e && t->seams.ep.scheme->open) e = t->seams.ep.scheme->open(&t->seams.ep, err);
    t->data.request = p->data;
    t->data.config = &t->plan.model;
    t->data.device = t->device;
    t->data.group = &t->dp;
    t->data.experts = plan_cuts_experts(p) ? &t->same_experts : NULL;
    t->data.parameters = &t->parameters;
    t->data.optimizer = p->optimizer;
    t->data.hyper = &t->plan.hyper;
    t->data.allreduce = p->allreduce;
    t->data.versions = t->schedule.weight_versions;
    return e;
}

static enum error_code make_stages(struct trainer *t, struct error *err)
{
    enum error_code e = OK;
    t->stage = calloc((size_t)t->plan.chunks, sizeof *t->stage);
    t->counted = calloc((size_t)t->plan.updates, sizeof *t->counted);
    t->times = calloc((size_t)t->schedule.count[t->pp.rank] + 1, sizeof *t->times);
    if (t->stage == NULL || t->counted == NULL || t->times == NULL)
        return fail(err, ERR_MEMORY, "no memory for lists of %d microbatches", t->plan.micros);
    for (int c = 0; c < t->plan.chunks && !e; c++) {
        e = stage_open(&t->stage[c], &t->plan, t->device, &t->tensor, &t->seams, &t->data,
                       t->schedule.stage_of[t->pp.rank][c], t->comm->rank, err);
        t->stages_open += !e;
    }
    return e;
}

static int list_action(const struct trainer *t, const struct action *a, struct use *use)
{
    const struct stage *stage = &t->stage[a->chunk];
    if (a->kind == FORWARD) return stage_uses_forward(stage, use);
    if (a->kind == BACKWARD || a->kind == BACKWARD_INPUT || a->kind == BACKWARD_WEIGHT)
        return stage_uses_backward(stage, a->kind != BACKWARD_WEIGHT, a->kind != BACKWARD_INPUT, use);
    if (a->kind != UPDATE || a->micro == t->schedule.micros - 1) return 0;
    use[0] = (struct use){ .pass = PASS_UPDATE };
    return 1;
}

/* The parts that the device's list of actions uses, in order.  With two versions of the weights, a batch does not use
 * the newest version that exists when it could: until the update U of batch b, batch b uses the older version and batch
 * b+1 the newer one. */
static int list_pass(const struct trainer *t, struct use *use)
{
    const struct schedule *s = &t->schedule;
    const int self = t->pp.rank;
    int n = 0, updated = 0;
    for (int i = 0; i < s->count[self]; i++) {
        const struct action *a = &s->actions[self][i];
        for (const int end = n + list_action(t, a, use + n); n < end; n++) {
            use[n].older = batch_of(t, a->micro) == updated;
            updated += use[n].pass == PASS_UPDATE;
        }
    }
    return n;
}

/* The list of uses is the same in every step. */
static enum error_code list_uses(struct trainer *t, struct error *err)
{
    const int actions = t->schedule.count[t->pp.rank];
    const size_t most =
        (size_t)(actions * plan_passes(&t->plan)) * (size_t)(t->plan.model.L + 2) * (size_t)part_uses_most(&t->plan);
    struct use *use = calloc(most + 1, sizeof *use);
    if (use == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d actions", actions);
    int n = list_pass(t, use);
    if (plan_passes(&t->plan) == 2) {
        use[n++] = (struct use){ .pass = PASS_TURN };
        n += list_pass(t, use + n);
    }
    data_set_uses(&t->data, use, n);
    return OK;
}

enum error_code trainer_outline(struct trainer *t, const struct plan *plan, struct comm *comm, struct error *err)
{
    *t = (struct trainer){ .plan = *plan, .comm = comm, .device = comm->device, .loss_scale = plan_loss_scale(plan) };
    t->plan.within = NULL, t->plan.ids = NULL;          /* a plan that is in use has them, of one of its steps */
    if (plan->comm_streams) t->device->clock.comm_streams = plan->comm_streams;
    enum error_code e = make_groups(t, err);
    if (!e) e = make_schemes(t, err);
    if (!e) e = make_parameters(t, err);
    if (!e) e = data_outline(&t->data, err);
    if (!e) e = result_open(&t->result, t, err);
    if (!e) e = make_stages(t, err);
    if (!e) e = routers_open(t, err);
    if (!e) e = list_uses(t, err);
    for (int s = plan->batches ? plan->batches->steps - 1 : -1; s >= 0 && !e; s--) e = trainer_cut_step(t, s, err);
    if (plan_follows_data(plan)) t->held = (struct held){ 0 };
    if (!e && plan_cuts_experts(plan)) trainer_note_held(t);            /* as if no rows came */
    if (!e) account_add(&t->begun.of[TRAFFIC_DATA], data_first_cost(&t->data), 1);
    if (!e) tier_traffic_add(&t->moved, data_first_moves(&t->data), 1);
    return e;
}

static enum error_code make_scratch(struct trainer *t, struct error *err)
{
    const int64_t tokens = plan_most_sequences(&t->plan) * t->plan.S;
    if (t->source.fill == NULL) return OK;
    t->scratch = calloc((size_t)(3 * tokens), sizeof *t->scratch);
    return t->scratch ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)tokens);
}

enum error_code trainer_open(struct trainer *t, const struct plan *plan, struct comm *comm, struct batch_source source,
                             struct error *err)
{
    enum error_code e = trainer_outline(t, plan, comm, err);
    t->source = source;
    t->held = (struct held){ 0 };
    if (!e) e = make_scratch(t, err);
    if (!e) e = data_fill(&t->data, t->plan.seed, err);
    if (!e) e = encoders_open(t, err);
    for (int c = 0; c < t->stages_open && !e; c++) e = away_open(&t->stage[c], err);
    e = comm_agree(comm, e, err);
    if (!e) e = trainer_agree_on_plans(t, OK, err);
    if (e) trainer_close(t);
    return e;
}

void trainer_close(struct trainer *t)
{
    encoders_close(t);
    for (int c = 0; c < t->stages_open; c++) stage_close(&t->stage[c]);
    routers_close(t);
    free(t->stage), free(t->scratch), free(t->counted), free(t->times);
    data_close(&t->data);
    free(t->parameters.all);
    schedule_free(&t->schedule);
    tensor_close(&t->tensor);
    struct group *const groups[] = {
        &t->world, &t->dp, &t->tp, &t->pp, &t->cp, &t->ep, &t->etp, &t->same_experts, &t->side, &t->sides
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) group_close(groups[i]);
    result_close(&t->result);
    for (int i = 0; i < ATTENTION_GROUPS; i++) group_close(&t->cp_part[i]);
    encoders_close(t);
    if (t->seams.ep.scheme && t->seams.ep.scheme->close) t->seams.ep.scheme->close(&t->seams.ep);
    for (int i = 0; i < EXPERT_GROUPS; i++) group_close(&t->ep_part[i]);
    *t = (struct trainer){ 0 };
}

void trainer_watch(struct trainer *t, const struct probe *probe)
{
    for (int c = 0; c < t->stages_open; c++) t->stage[c].probe = probe;
}
