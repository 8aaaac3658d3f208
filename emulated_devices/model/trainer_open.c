/* trainer_open.c -- a device's groups, schemes, parameters, stages, and the lists that stay the same in all steps.
 * Files of verify/, train/, bench/, model/ and other rooms call these functions.  Errors: ERR_PLAN for what does not
 * fit, ERR_MEMORY, ERR_COMM, ERR_FILE of the slow tier; trainer_open leaves nothing to close then. */
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/apart.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/zeroth.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/model/params.h"
#include <stdlib.h>

/* A parameter of which this device has pieces. */
struct held_parameter { struct param_spec spec; int index, turn, tiles; bool first; };

/* Add this device's pieces of a parameter: one, or one per tile.  A tile is counted whole if any part of its
 * parameter is. */
static void make_pieces(struct trainer *trainer, const struct held_parameter *parameter)
{
    for (int tile = 0; tile < parameter->tiles; tile++) {
        struct parameter *p = &trainer->parameters.all[trainer->parameters.count++];
        *p = plan_piece(&trainer->plan, trainer->comm->rank, parameter->index, &parameter->spec, tile);
        p->holders = plan_holders(&trainer->plan, &trainer->schedule, &parameter->spec, NULL);
        const struct tensor_parallel tp = plan_share_of(&trainer->plan, trainer->comm->rank, &parameter->spec);
        const int64_t counted = p->own = tensor_counted(&tp, &parameter->spec);
        p->counted = !parameter->first ? 0 : parameter->tiles > 1 && counted > 0 ? layout_count(&p->layout) : counted;
    }
}

/* Its unit is numbered by part: 0; after those: 1; of experts that only some devices have, or that alone are on the
 * slow tier: 2; then those of the other kinds (units.h). */
static int turn_in_kind(const struct trainer *trainer, const struct param_spec *spec, int tiles)
{
    if (spec->expert >= 0 && (plan_cuts_experts(&trainer->plan) || trainer->plan.data.offload_experts)) return 2;
    return tiles > 1 || (data_quantises(&trainer->plan.data) && tensor_copied(&trainer->tensor, spec));
}

struct param_spec trainer_spec(const struct trainer *trainer, int index)
{
    return model_param(&trainer->plan.model, index);
}

static bool holds(const struct trainer *trainer, int index, struct held_parameter *parameter)
{
    *parameter = (struct held_parameter){ .spec = trainer_spec(trainer, index), .index = index };
    parameter->tiles = tiles_of(&trainer->plan.data, &parameter->spec);
    parameter->turn = PARAMETER_TURNS / UNIT_KINDS * (int)data_unit_kind(&trainer->plan.model, &parameter->spec) +
                      turn_in_kind(trainer, &parameter->spec, parameter->tiles);
    return plan_holds(&trainer->plan, &trainer->schedule, trainer->comm->rank, &parameter->spec, &parameter->first);
}

/* The parameters of a block are all on the same stages, but for experts, which are at its end.
 * @return how many of a layer's parameters this device has pieces of. */
static int list_layer(const struct trainer *trainer, int layer, struct held_parameter *list)
{
    const int first = param_of_layer(&trainer->plan.model, layer),
        end = param_of_layer(&trainer->plan.model, layer + 1);
    const bool block = layer >= 0 && layer < trainer->plan.model.L;
    int n = 0;
    for (int i = first; i < end && !(block && n == 0 && i > first); i++) n += holds(trainer, i, &list[n]);
    return n;
}

/* @return how many, or -1: no memory. */
static int list_held(const struct trainer *trainer, struct held_parameter **list)
{
    int n = 0, room = 0;
    *list = NULL;
    for (int layer = -1; layer <= trainer->plan.model.L; layer++) {
        const int more = param_of_layer(&trainer->plan.model, layer + 1) - param_of_layer(&trainer->plan.model, layer);
        if (n + more > room) {
            struct held_parameter *grown = realloc(*list, sizeof **list * (size_t)(room = 2 * (n + more)));
            if (grown == NULL) return -1;
            *list = grown;
        }
        n += list_layer(trainer, layer, *list + n);
    }
    return n;
}

/* In the order of units. */
static enum error_code make_parameters(struct trainer *trainer, struct error *err)
{
    struct held_parameter *list = NULL;
    const int n = trainer_takes_part(trainer) ? list_held(trainer, &list) : 0;
    size_t pieces = 0;
    for (int i = 0; i < n; i++) pieces += (size_t)list[i].tiles;
    trainer->parameters.all = n < 0 ? NULL : calloc(pieces + 1, sizeof *trainer->parameters.all);
    for (int turn = 0; turn < PARAMETER_TURNS && trainer->parameters.all; turn++) {
        for (int i = 0; i < n; i++)
            if (turn == list[i].turn) make_pieces(trainer, &list[i]);
        trainer->parameters.end[turn] = trainer->parameters.count;
    }
    free(list);
    return trainer->parameters.all ? OK : fail(err, ERR_MEMORY, "no memory for a list of parameters");
}

static enum error_code make_expert_groups(struct trainer *trainer, struct error *err)
{
    int *const member = malloc(sizeof *member * (size_t)trainer->comm->size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", trainer->comm->size);
    int n = plan_expert_members(&trainer->plan, trainer->comm->rank, EXPERT_PARTS, member);
    enum error_code e = group_of(&trainer->ep, trainer->comm, member, n, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    n = plan_expert_members(&trainer->plan, trainer->comm->rank, EXPERT_SLICES, member);
    if (!e) e = group_of(&trainer->etp, trainer->comm, member, n, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    const bool cuts = plan_cuts_experts(&trainer->plan);
    if (cuts) n = plan_expert_members(&trainer->plan, trainer->comm->rank, EXPERT_COPIES, member);
    if (!e && cuts)
        e = group_of(&trainer->same_experts, trainer->comm, member, n, TRAFFIC_DATA, AXIS_BIT(DP), err);
    free(member);
    return e;
}

/* Without a part in the work a device's groups are of itself. */
static enum error_code make_own_groups(struct trainer *trainer, struct error *err)
{
    struct group *const groups[] = { &trainer->dp, &trainer->tp, &trainer->pp, &trainer->cp, &trainer->ep,
                                     &trainer->etp, &trainer->same_experts };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof groups / sizeof *groups && !e; i++)
        e = group_of(groups[i], trainer->comm, &trainer->comm->rank, 1, TRAFFIC_OTHER, 0, err);
    return e;
}

static enum error_code make_groups(struct trainer *trainer, struct error *err)
{
    enum error_code e = group_world(&trainer->world, trainer->comm, err);
    if (!trainer_takes_part(trainer)) return e ? e : make_own_groups(trainer, err);
    if (!e) e = group_along(&trainer->dp, trainer->comm, &trainer->plan.mesh, TRAFFIC_DATA,
                            AXIS_BIT(DP) | AXIS_BIT(CP), err);
    if (!e) e = group_along(&trainer->tp, trainer->comm, &trainer->plan.mesh, TRAFFIC_TENSOR, AXIS_BIT(TP), err);
    if (!e) e = group_along(&trainer->pp, trainer->comm, &trainer->plan.mesh, TRAFFIC_PIPELINE, AXIS_BIT(PP), err);
    if (!e) e = group_along(&trainer->cp, trainer->comm, &trainer->plan.mesh, TRAFFIC_ATTENTION, AXIS_BIT(CP), err);
    if (!e) e = make_expert_groups(trainer, err);
    return !e && draws(trainer) && trainer->plan.layers.count == 0 ? zeroth_open(trainer, err) : e;
}

static enum error_code make_schemes(struct trainer *trainer, const struct schedule *whole, int place,
                                    struct error *err)
{
    const struct plan *p = &trainer->plan;
    /* A device without a part stands where the first one does: only extents are taken. */
    const int rank = trainer_takes_part(trainer) ? trainer->comm->rank : p->mesh.first;
    enum error_code e = tensor_scheme_find(&trainer->tensor.scheme, p->tensor, err);
    if (!e) e = data_scheme_find(&trainer->data.scheme, p->data.scheme, err);
    if (!e) e = plan_schedule(p, &trainer->schedule, err);
    if (!e && whole) e = sections_list(&trainer->schedule, whole, place, err);
    if (e) return e;
    if (forward_only(trainer)) schedule_keep_forwards(&trainer->schedule);
    if (p->model.exact) e = device_compute_exactly(trainer->device, p->model.exact, err);
    if (e) return e;
    trainer->tensor.config = &trainer->plan.model;
    trainer->tensor.device = trainer->device;
    trainer->tensor.allreduce = p->allreduce;
    trainer->tensor.S = plan_tensor_share(p, rank).S;
    trainer->seams = plan_seams(p, &trainer->tensor, rank);
    trainer->seams.cp.group = &trainer->cp, trainer->seams.cp.part = trainer->cp_part,
        trainer->seams.ep.group = &trainer->ep;
    trainer->seams.ep.along_etp = &trainer->etp;
    trainer->seams.ep.part = trainer->ep_part;
    trainer->tensor.wide_gradients = !p->data.narrow_gradients;
    if (trainer_takes_part(trainer)) e = tensor_open(&trainer->tensor, &trainer->tp, err);
    const bool opens = trainer_takes_part(trainer) && !e;
    if (opens && trainer->seams.cp.scheme->open) e = trainer->seams.cp.scheme->open(&trainer->seams.cp, err);
    if (opens && !e && trainer->seams.ep.scheme->open) e = trainer->seams.ep.scheme->open(&trainer->seams.ep, err);
    trainer->data.request = p->data;
    trainer->data.config = &trainer->plan.model;
    trainer->data.device = trainer->device;
    trainer->data.group = &trainer->dp;
    trainer->data.experts = plan_cuts_experts(p) ? &trainer->same_experts : NULL;
    trainer->data.along_tp = &trainer->tp, trainer->data.along_etp = &trainer->etp;
    trainer->data.parameters = &trainer->parameters;
    trainer->data.optimizer = p->optimizer;
    trainer->data.hyper = &trainer->plan.hyper;
    trainer->data.allreduce = p->allreduce;
    trainer->data.versions = trainer->schedule.weight_versions;
    return e;
}

static enum error_code make_stages(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    if (!trainer_takes_part(trainer)) return OK;
    trainer->stage = calloc((size_t)trainer->plan.chunks, sizeof *trainer->stage);
    trainer->counted = calloc((size_t)trainer->plan.updates, sizeof *trainer->counted);
    trainer->times = calloc((size_t)trainer->schedule.count[trainer->pp.rank] + 1, sizeof *trainer->times);
    if (trainer->stage == NULL || trainer->counted == NULL || trainer->times == NULL)
        return fail(err, ERR_MEMORY, "no memory for lists of %d microbatches", trainer->plan.micros);
    for (int c = 0; c < trainer->plan.chunks && !e; c++) {
        e = stage_open(&trainer->stage[c], &trainer->plan, trainer->device, &trainer->tensor, &trainer->seams,
                       &trainer->data, trainer->schedule.stage_of[trainer->pp.rank][c], trainer->comm->rank, err);
        trainer->stages_open += !e;
    }
    return e;
}

static int list_action(const struct trainer *trainer, const struct action *action, struct use *use)
{
    const struct stage *stage = &trainer->stage[action->chunk];
    if (action->kind == FORWARD) return stage_uses_forward(stage, use);
    if (action->kind == BACKWARD || action->kind == BACKWARD_INPUT || action->kind == BACKWARD_WEIGHT)
        return stage_uses_backward(stage, action->kind != BACKWARD_WEIGHT, action->kind != BACKWARD_INPUT, use);
    if (action->kind != UPDATE || action->micro == trainer->schedule.micros - 1) return 0;
    use[0] = (struct use){ .pass = PASS_UPDATE };
    return 1;
}

/* The parts that the device's list of actions uses, in order.  With two versions of the weights, a batch does not use
 * the newest version that exists when it could: until the update U of batch b, batch b uses the older version and batch
 * b+1 the newer one. */
static int list_pass(struct trainer *trainer, struct use *use)
{
    const struct schedule *s = &trainer->schedule;
    const int self = trainer->pp.rank;
    int n = 0, updated = 0;
    for (int i = 0; i < s->count[self]; i++) {
        const struct action *a = &s->actions[self][i];
        trainer->use_end[i] = n;
        for (const int end = n + list_action(trainer, a, use + n); n < end; n++) {
            use[n].older = batch_of(trainer, a->micro) == updated;
            updated += use[n].pass == PASS_UPDATE;
        }
    }
    trainer->use_end[s->count[self]] = n;
    return n;
}

/* The list of uses is the same in every step. */
static enum error_code list_uses(struct trainer *trainer, struct error *err)
{
    if (!trainer_takes_part(trainer)) return OK;
    const int actions = trainer->schedule.count[trainer->pp.rank];
    const size_t most =
        (size_t)(actions * plan_passes(&trainer->plan)) * (size_t)(trainer->plan.model.L + 2)
            * (size_t)part_uses_most(&trainer->plan);
    struct use *use = calloc(most + 1, sizeof *use);
    trainer->use_end = calloc((size_t)actions + 1, sizeof *trainer->use_end);
    if (trainer->use_end == NULL) free(use), use = NULL;
    if (use == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d actions", actions);
    int n = list_pass(trainer, use);
    if (plan_passes(&trainer->plan) == 2) {
        use[n++] = (struct use){ .pass = PASS_TURN };
        n += list_pass(trainer, use + n);
    }
    data_set_uses(&trainer->data, use, n);
    return OK;
}

enum error_code trainer_outline_part(struct trainer *trainer, const struct plan *plan, struct comm *comm,
                                     const struct schedule *whole, int place, struct error *err)
{
    *trainer = (struct trainer){ .plan = *plan, .comm = comm, .device = comm->device,
                                .loss_scale = plan_loss_scale(plan) };
    /* a plan that is in use has them, of one of its steps */
    trainer->plan.within = NULL, trainer->plan.ids = NULL, trainer->plan.samples = NULL;
    if (plan->comm_streams) trainer->device->clock.comm_streams = plan->comm_streams;
    enum error_code e = make_groups(trainer, err);
    if (!e) e = make_schemes(trainer, whole, place, err);
    if (!e) e = make_parameters(trainer, err);
    if (!e) e = data_outline(&trainer->data, err);
    if (!e) e = result_open(&trainer->result, trainer, err);
    if (!e) e = make_stages(trainer, err);
    if (!e) e = routers_open(trainer, err);
    if (!e) e = list_uses(trainer, err);
    if (!e) e = encoders_outline(trainer, err);
    for (int s = plan->batches ? plan->batches->steps - 1 : -1; s >= 0 && !e; s--)
        e = trainer_cut_step(trainer, s, err);
    if (plan_follows_data(plan)) trainer->held = (struct held){ 0 };
    if (!e && plan_cuts_experts(plan) && trainer_takes_part(trainer))
        trainer_note_held(trainer);                                            /* as if no rows came */
    if (!e) account_add(&trainer->begun.of[TRAFFIC_DATA], data_first_cost(&trainer->data), 1);
    if (!e) tier_traffic_add(&trainer->moved, data_first_moves(&trainer->data), 1);
    return e;
}

enum error_code trainer_outline(struct trainer *trainer, const struct plan *plan, struct comm *comm, struct error *err)
{
    const enum error_code e = trainer_outline_part(trainer, plan, comm, NULL, 0, err);
    return e || plan->sections == NULL ? e : sections_outline(trainer, err);
}

static enum error_code make_scratch(struct trainer *trainer, struct error *err)
{
    const int64_t tokens = plan_most_sequences(&trainer->plan) * trainer->plan.S;
    if (trainer->source.fill == NULL || trainer->source.share != NULL) return OK;
    trainer->scratch = calloc((size_t)(3 * tokens), sizeof *trainer->scratch);
    return trainer->scratch ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)tokens);
}

enum error_code trainer_open(struct trainer *trainer, const struct plan *plan, struct comm *comm,
                             struct batch_source source, struct error *err)
{
    enum error_code e = trainer_outline(trainer, plan, comm, err);
    trainer->source = source;
    trainer->held = (struct held){ 0 };
    if (!e) e = make_scratch(trainer, err);
    if (!e) e = data_fill(&trainer->data, trainer->plan.seed, err);
    if (!e && trainer->section) e = sections_fill(trainer, err);
    if (!e) e = encoders_fill(trainer, err);
    for (int c = 0; c < trainer->stages_open && !e; c++) e = away_open(&trainer->stage[c], err);
    e = comm_agree(comm, e, err);
    if (!e) e = trainer_agree_on_plans(trainer, OK, err);
    if (e) trainer_close(trainer);
    return e;
}

void trainer_close(struct trainer *trainer)
{
    encoders_close(trainer);
    sections_close(trainer);
    for (int c = 0; c < trainer->stages_open; c++) stage_close(&trainer->stage[c]);
    routers_close(trainer);
    if (!trainer->shared) free(trainer->scratch);
    free(trainer->stage), free(trainer->counted), free(trainer->times), free(trainer->use_end);
    data_close(&trainer->data);
    free(trainer->parameters.all);
    schedule_free(&trainer->schedule);
    tensor_close(&trainer->tensor);
    struct group *const groups[] = {
        &trainer->world, &trainer->dp, &trainer->tp, &trainer->pp, &trainer->cp, &trainer->ep, &trainer->etp,
            &trainer->same_experts, &trainer->side, &trainer->sides
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) group_close(groups[i]);
    result_close(&trainer->result);
    for (int i = 0; i < ATTENTION_GROUPS; i++) group_close(&trainer->cp_part[i]);
    if (trainer->seams.ep.scheme && trainer->seams.ep.scheme->close)
        trainer->seams.ep.scheme->close(&trainer->seams.ep);
    for (int i = 0; i < EXPERT_GROUPS; i++) group_close(&trainer->ep_part[i]);
    *trainer = (struct trainer){ 0 };
}

void trainer_watch(struct trainer *trainer, const struct probe *probe)
{
    for (int c = 0; c < trainer->stages_open; c++) trainer->stage[c].probe = probe;
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++)
        trainer_watch(&trainer->section[i], probe);
}
