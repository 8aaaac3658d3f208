#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/apart.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/zeroth.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/sample_mask.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* A parameter of which this device has pieces. */
struct held_parameter { struct param_spec spec; int index, turn, tiles; bool first; };

/* Add this device's pieces of a parameter: one, or one per tile.  A tile is counted whole if any part of it is. */
static void make_pieces(struct trainer *t, const struct held_parameter *h)
{
    for (int tile = 0; tile < h->tiles; tile++) {
        struct parameter *p = &t->parameters.all[t->parameters.count++];
        *p = plan_piece(&t->plan, t->comm->rank, h->index, &h->spec, tile);
        p->holders = plan_holders(&t->plan, &t->schedule, &h->spec, NULL);
        const struct tensor_parallel tp = plan_share_of(&t->plan, t->comm->rank, &h->spec);
        p->counted = !h->first ? 0 : h->tiles > 1 ? layout_count(&p->layout) : tensor_counted(&tp, &h->spec);
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

/* Which of this step's optimizer steps a microbatch belongs to. */
static int batch_of(const struct trainer *t, int micro) { return micro / t->schedule.update_every; }

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

static void note_held(struct trainer *t)
{
    const struct held h = trainer_activations(t);
    t->held = (struct held){ .peak = larger(t->held.peak, h.peak), .together = larger(t->held.together, h.together) };
}

/* Of a plan that changes: set the microbatches of this step, and update the largest memory. */
static enum error_code cut_step(struct trainer *t, int64_t step, struct error *err)
{
    enum error_code e = OK;
    plan_take_step(&t->plan, step);
    for (int c = 0; c < t->plan.chunks && !e; c++) e = stage_cut(&t->stage[c], err);
    if (e) return e;
    note_held(t);
    return OK;
}

/* Devices along cp must have made the same plans of where tokens are, or they would wait for messages that nobody
 * sends.  e: whether this device has made its own. */
static enum error_code agree_on_plans(struct trainer *t, enum error_code e, struct error *err)
{
    struct error differs;
    struct sha256 sum = sha256_begin();
    if (t->seams.cp.scheme->plan == NULL) return e;
    for (int i = 0; i < t->plan.micros; i++)
        sha256_add(&sum, &t->stage[0].micro[i].plan.digest, sizeof t->stage[0].micro[i].plan.digest);
    const struct sha256_text own = sha256_end(&sum);
    const enum error_code same = group_same(&t->cp, own.text, sizeof own.text - 1, "the plan of tokens", &differs);
    if (!e && same) e = fail(err, same, "%s", differs.text);
    return comm_agree(t->comm, e, err);
}

enum error_code trainer_outline(struct trainer *t, const struct plan *plan, struct comm *comm, struct error *err)
{
    *t = (struct trainer){ .plan = *plan, .comm = comm, .device = comm->device, .loss_scale = plan_loss_scale(plan) };
    enum error_code e = make_groups(t, err);
    if (!e) e = make_schemes(t, err);
    if (!e) e = make_parameters(t, err);
    if (!e) e = data_outline(&t->data, err);
    if (!e) e = result_open(&t->result, t, err);
    if (!e) e = make_stages(t, err);
    if (!e) e = routers_open(t, err);
    if (!e) e = list_uses(t, err);
    for (int s = plan->batches ? plan->batches->steps - 1 : -1; s >= 0 && !e; s--) e = cut_step(t, s, err);
    if (plan_follows_data(plan)) t->held = (struct held){ 0 };
    if (!e && plan_cuts_experts(plan)) note_held(t);            /* as if no rows came */
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
    if (!e) e = agree_on_plans(t, OK, err);
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

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Of some sequences; without labels none is ignored. */
static int64_t count(const int32_t *labels, struct interval sequences, int64_t S)
{
    const int64_t first = sequences.first * S, end = interval_end(sequences) * S;
    int64_t n = labels ? 0 : end - first;
    for (int64_t i = first; labels && i < end; i++) n += labels[i] != IGNORE_LABEL;
    return n;
}

/* Count the labels that are not ignored: of the whole batch, and of the replica's sequences for each optimizer step. */
static void count_labels(struct trainer *t, const int32_t *labels)
{
    const struct plan *p = &t->plan;
    const struct interval own = plan_replica_copies(p, plan_replica_of(p, t->comm->rank));
    memset(t->counted, 0, (size_t)p->updates * sizeof *t->counted);
    t->labels = count(labels, (struct interval){ 0, p->B }, p->S);
    for (int dp = (int)own.first; dp < own.first + own.count && dp < plan_parts(p); dp++)
        for (int i = 0; i < p->micros; i++) {
            t->counted[batch_of(t, i)] += count(labels, plan_microbatch(p, dp, i), p->S);
        }
}

/* N: tokens of the batch, which every parallel stream reads. */
static void take_rows(int32_t *into, const int32_t *of, int64_t N, const struct intervals *rows)
{
    for (int i = 0; i < rows->count && of; i++)
        for (int64_t k = 0; k < rows->at[i].count; k++) *into++ = of[(rows->at[i].first + k) % N];
}

/* Of packed samples: the positions of this device's tokens, and what the tokens of its sequences see. */
static enum error_code take_samples(struct microbatch *m, const int32_t *within, int64_t N, int64_t S,
                                    struct error *err)
{
    take_rows(m->positions.data, within, N, &m->rows);
    m->pairs[0] = m->pairs[1] = -1;
    const int64_t tokens = m->sequences.count * S, sequence = m->plan.tokens > 0 ? tokens : S;
    return sample_mask(m->mask.data, within + m->sequences.first * S, tokens / sequence, sequence, err);
}

/* The batch in scratch memory: ids, labels, positions in samples. */
static int32_t *batch_labels(const struct trainer *t)
{
    return t->scratch ? t->scratch + t->plan.B * t->plan.S : NULL;
}
static int32_t *batch_within(const struct trainer *t)
{
    return t->plan.packed && t->scratch ? t->scratch + 2 * t->plan.B * t->plan.S : NULL;
}

void trainer_read_batch(struct trainer *t)
{
    plan_take_step(&t->plan, t->step);
    if (t->source.fill == NULL) return;
    t->source.fill(t->source.context, t->step, 0, t->plan.B, t->scratch, batch_labels(t), batch_within(t));
    t->plan.within = batch_within(t), t->plan.ids = t->scratch;
}

/* Of a plan that changes: set the sizes of this step, and add what it sends. */
static enum error_code take_step(struct trainer *t, struct error *err)
{
    if (!plan_changes(&t->plan)) return OK;
    const enum error_code cut = cut_step(t, t->step, err), e = agree_on_plans(t, cut, err);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT && !e; kind++)
        account_add(&t->begun.of[kind], trainer_cost(t, kind), 1);
    if (!e) tier_traffic_add(&t->moved, trainer_activation_moves(t), 1);
    return e;
}

/* Every device computes the whole batch and takes each stage's tokens from it. */
static enum error_code take_batch(struct trainer *t, struct error *err)
{
    const struct plan *p = &t->plan;
    trainer_read_batch(t);
    enum error_code e = take_step(t, err);
    if (e) return e;
    e = encoders_take_batch(t, t->scratch, batch_labels(t), err);
    if (e) return e;
    const int32_t *const ids = t->scratch, *const labels = batch_labels(t), *const within = batch_within(t);
    const int64_t N = p->B * p->S;
    count_labels(t, labels);
    t->updated = 0;
    routers_begin(t);
    data_expect_step(&t->data, t->step * p->updates + 1 - t->skipped);
    for (int c = 0; c < p->chunks; c++) {
        struct stage *s = &t->stage[c];
        s->loss = 0;
        s->loss_scale = t->loss_scale.scale;
        s->dropout_seed = dropout_seed(p->seed, t->step);
        for (int i = 0; i < p->micros && !e; i++) {
            struct microbatch *m = &s->micro[i];
            take_rows(m->ids.data, ids, N, &m->rows);
            take_rows(m->labels.data, labels, N, &m->tokens);
            if (p->packed) e = take_samples(m, within, N, p->S, err);
        }
    }
    return e;
}

/* ---- parameters that several places of the pipeline hold --------------------------------------------------------- */

enum { SHARED_NAME = 1 << 16 };         /* names the exchange of unit u: SHARED_NAME + u; microbatches count from 0 */

/* The quantising errors of the places' gradients are summed, too. */
static enum error_code track_shared(struct trainer *t, int unit, const int *place, int holders, struct error *err)
{
    const struct unit *u = &t->data.unit[unit];
    struct exchange control = exchange_named(&t->pp, CONTROL, SHARED_NAME + (uint32_t)unit);
    return tracked(u->tracking) ? tracking_sum(&control, holders, place, data_own_tracking(u),
                                               data_own_gradient(u), err)
                                : OK;
}

/* Sum the gradients of all places that hold a unit, in order of place, so that all get the same bits.  They have been
 * reduced over dp, and at one dp coordinate all places step the same part of the unit. */
static enum error_code reduce_one(struct trainer *t, int unit, struct error *err)
{
    int place[MESH_MOST_DEVICES];
    struct unit *u = &t->data.unit[unit];
    struct tensor g;
    enum error_code e = data_take_gradient(&t->data, u, &g, err);
    if (e) return e;
    struct exchange x = exchange_named(&t->pp, ALLREDUCE, SHARED_NAME + (uint32_t)unit);
    const uint64_t bytes = tensor_bytes(g);
    const int holders = plan_holders(&t->plan, &t->schedule, &u->parameter[0].spec, place);
    char *all = exchange_scratch(&x, bytes * (uint64_t)holders);
    e = all ? OK
            : fail(err, ERR_MEMORY, "no memory for the other copies of the gradient of %s", u->parameter[0].spec.name);
    for (int i = 0; i < holders && !e; i++) {
        if (place[i] == t->pp.rank) device_copy(t->comm->device, all + (uint64_t)i * bytes, g.data, bytes);
        else e = exchange_both(&x, place[i], g.data, bytes, place[i], all + (uint64_t)i * bytes, bytes, err);
        if (place[i] != t->pp.rank) ledger_messages(&t->comm->expected, &t->pp, ALLREDUCE, place[i], bytes, 1);
    }
    for (int i = 0; i < holders && !e; i++) {
        if (i == 0) device_copy(t->comm->device, g.data, all, bytes);
        else reduce_local(&x, SUM, g.dtype, g.data, all + (uint64_t)i * bytes, tensor_count(g));
    }
    ledger_additions(&t->comm->expected, &t->pp, ALLREDUCE, (uint64_t)((holders - 1) * tensor_count(g)));
    exchange_release(&x, all);
    if (!e) e = data_put_gradient(&t->data, u, err);
    return e ? e : track_shared(t, unit, place, holders, err);
}

static enum error_code reduce_shared(struct trainer *t, struct error *err)
{
    enum error_code e = OK;
    for (int u = 0; u < t->data.units && !e; u++)
        if (holders_of(&t->data.unit[u]) > 1) e = reduce_one(t, u, err);
    return e;
}

/* ---- an optimizer step, at the end of a step or inside it -------------------------------------------------------- */

/* Reduce the gradients of this device's microbatches to those of the whole batch. */
static enum error_code reduce(struct trainer *t, struct error *err)
{
    t->device->arena.doing = (struct doing){ .pass = "reduction of gradients", .micro = -1 };
    const enum error_code e = data_finish_gradients(&t->data, err);
    return e ? e : reduce_shared(t, err);
}

static enum error_code update(struct trainer *t, double gradient_scale, struct error *err)
{
    const int64_t at = t->step * t->plan.updates + ++t->updated - t->skipped;
    t->device->arena.doing = (struct doing){ .pass = "optimizer step", .micro = -1 };
    return data_step(&t->data, at, gradient_scale, err);
}

/* Take an optimizer step inside the training step.  trainer_update takes the last one, with the norm. */
static enum error_code update_in_stream(struct trainer *t, int micro, struct error *err)
{
    if (micro == t->plan.micros - 1) return OK;
    enum error_code e = reduce(t, err);
    return e ? e : update(t, 1, err);
}

static enum error_code pass(struct trainer *t, enum action_kind kind, struct stage *s, int micro, struct error *err)
{
    s->counted = t->counted[batch_of(t, micro)];
    if (kind == FORWARD) return stage_forward(s, micro, err);
    return stage_backward(s, micro, kind != BACKWARD_WEIGHT, kind != BACKWARD_INPUT, err);
}

static enum error_code compute(void *context, enum action_kind kind, int chunk, int micro, struct error *err)
{
    static const char *const name[] = { [FORWARD] = "forward", [BACKWARD] = "backward",
                                        [BACKWARD_INPUT] = "backward for inputs",
                                        [BACKWARD_WEIGHT] = "backward for weights" };
    struct trainer *t = context;
    struct doing *const doing = &t->device->arena.doing;
    if (kind == UPDATE) return update_in_stream(t, micro, err);
    *doing = (struct doing){ .pass = name[kind], .micro = micro };
    const enum error_code e = pass(t, kind, &t->stage[chunk], micro, err);
    *doing = (struct doing){ .pass = "messages after the passes", .micro = micro };
    return e;
}

#define PLACE(name)                                                                                             \
    static struct tensor name(void *context, int chunk, int micro)                                              \
    {                                                                                                           \
        return stage_##name(&((struct trainer *)context)->stage[chunk], micro);                                 \
    }
PLACE(input)
PLACE(output_gradient)
PLACE(take_output)
PLACE(take_input_gradient)
#undef PLACE

static enum error_code backward_begins(void *context, struct error *err) { return routers_share(context, err); }

static const struct stage_operations stage_operations = {
    .compute = compute, .input = input, .output_gradient = output_gradient, .take_output = take_output,
    .take_input_gradient = take_input_gradient, .backward_begins = backward_begins,
};

/* ---- a step, its two halves -------------------------------------------------------------------------------------- */

enum error_code trainer_pass(struct trainer *t, double *loss, struct error *err)
{
    for (int c = 0; c < t->plan.chunks; c++) t->stage[c].loss = 0;
    const enum error_code e = schedule_execute(&t->schedule, &t->pp, &stage_operations, t, t->times, err);
    *loss = 0;
    for (int c = 0; c < t->plan.chunks; c++)
        if (t->stage[c].last) *loss += t->stage[c].loss;
    return e;
}

/* Reduce loss and norm, a few numbers.  Of the devices of a tp group with the same tokens, one contributes the
 * loss. */
static enum error_code share_result(struct trainer *t, double loss, struct step_result *out, struct error *err)
{
    double number[RESULT_NUMBERS] = { loss }, sums[2], routers = 0;
    struct exact_sum squares;
    data_norm_part(&t->data, &squares);
    exact_to_numbers(&squares, number + 1);
    enum error_code e = result_reduce(t, number, RESULT_NUMBERS, SUM, err);
    exact_from_numbers(&squares, number + 1);
    sums[0] = number[0], sums[1] = exact_value(&squares);
    out->loss_scale = t->loss_scale.scale;
    t->norm = sqrt(sums[1]) / out->loss_scale;
    if (!e && t->data.shards.apart) e = apart_share(t, sums, err);
    if (!e) e = routers_loss(t, &routers, out, err);
    out->loss = sums[0] / (double)(t->labels ? t->labels : 1) + routers;
    out->norm = sqrt(sums[1]) / out->loss_scale;
    return e;
}

static enum error_code gradients(struct trainer *t, struct step_result *out, struct error *err)
{
    double loss = 0;
    enum error_code e = encoders_forward(t, err);
    if (!e) e = trainer_pass(t, &loss, err);
    if (!e) e = encoders_backward(t, err);
    if (!e) e = reduce(t, err);
    if (!e) e = share_result(t, loss, out, err);
    return e;
}

static enum error_code only_loss(struct trainer *t, struct step_result *out, struct error *err)
{
    double loss = 0;
    enum error_code e = encoders_forward(t, err);
    if (!e) e = trainer_pass(t, &loss, err);
    if (!e) e = routers_share(t, err);
    return e ? e : share_result(t, loss, out, err);
}

enum error_code trainer_gradients(struct trainer *t, struct step_result *out, struct error *err)
{
    enum error_code e = take_batch(t, err);
    if (!e) e = draws(t) ? zeroth_losses(t, out, err) : infers(t) ? only_loss(t, out, err) : gradients(t, out, err);
    if (e) comm_give_up(t->comm, err);
    if (plan_cuts_experts(&t->plan)) note_held(t);      /* now the routings are known */
    return OK;
}

/* Each device checks its own budget; then all agree on one message.  The memory needed is known only after a whole
 * step. */
static enum error_code check_budget(struct trainer *t, struct error *err)
{
    const struct arena *a = &t->device->arena;
    char where[64];
    enum error_code e = OK;
    if (arena_over(a))
        e = fail(err, ERR_MEMORY, "device %d (%s) needs %llu bytes of memory; its budget is %llu", t->comm->rank,
                 mesh_describe(&t->plan.mesh, t->comm->rank, where, sizeof where), (unsigned long long)a->peak.total,
                 (unsigned long long)a->budget);
    return comm_agree(t->comm, e, err);
}

enum error_code trainer_update(struct trainer *t, struct step_result *out, struct error *err)
{
    enum error_code e = OK;
    if (infers(t)) {
        t->step++;
        return check_budget(t, err);
    }
    out->skipped = !loss_scale_update(&t->loss_scale, !isfinite(out->norm));
    if (t->loss_scale.exhausted)
        e = fail(err, ERR_DIVERGED, "step %lld: gradients overflow at loss scale %g, the least that --as %s allows",
                 (long long)t->step + 1, t->loss_scale.scale, t->plan.hyper.as.text);
    if (e) return comm_agree(t->comm, e, err);
    if (out->skipped) {
        data_skip_step(&t->data);
        t->skipped++;
    } else e = update(t, draws(t) ? out->slope : clip_scale(&t->plan.hyper, t->norm) / out->loss_scale, err);
    if (!out->skipped) routers_update(t), encoders_update(t, clip_scale(&t->plan.hyper, t->norm));
    if (t->seams.ep.scheme->step) t->seams.ep.scheme->step(&t->seams.ep);
    if (e) comm_give_up(t->comm, err);
    t->step++;
    out->lr = learning_rate(&t->plan.hyper, t->step * t->plan.updates - t->skipped);
    return check_budget(t, err);
}
