#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_bounds.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "emulated_devices/verify/reference/reference_outer.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool copy_tensor(struct tensor *copy, struct tensor t)
{
    *copy = t;
    copy->data = malloc(tensor_bytes(t));
    if (copy->data) memcpy(copy->data, t.data, tensor_bytes(t));
    return copy->data != NULL;
}

static bool is_mixed(const struct plan *p) { return dtype_is_narrow(p->dtype); }
static bool draws(const struct plan *p) { return optimizer_draws(p->optimizer); }

bool reference_has_masters(const struct plan *p)
{
    return !p->optimizer->infers && (is_mixed(p) || quantised_after_step(p));
}

/* The initial values of a parameter in the format of masters, rounded to its weights.  @return NULL without memory. */
static void *draw_master(struct serial_run *r, const struct plan *p, int i)
{
    struct tensor m = r->model.w[i];
    m.dtype = dtype_wide(p->dtype);
    m.data = malloc(tensor_bytes(m));
    if (m.data == NULL) return NULL;
    param_init(&r->model.spec[i], p->seed, m.dtype, 0, tensor_count(m), m.data);
    tensor_convert(r->model.w[i], m);
    return m.data;
}

/* Masters are the weights themselves or copies: fp32 masters of 16-bit weights.  Inference starts from the same weights
 * as training, and keeps no masters. */
static bool make_masters(struct serial_run *r, const struct plan *p)
{
    for (int i = 0; i < r->model.params; i++) {
        r->master[i] = r->model.w[i];
        if (!reference_has_masters(p) && !is_mixed(p)) continue;
        void *const drawn = draw_master(r, p, i);
        if (drawn == NULL) return false;
        if (reference_has_masters(p)) r->master[i].data = drawn, r->master[i].dtype = dtype_wide(p->dtype);
        else free(drawn);
    }
    return true;
}

static enum error_code serial_open(struct serial_run *r, const struct plan *p, const struct rule *rule,
                                   struct error *err)
{
    enum error_code e = transformer_open(&r->model, &p->model, p->dtype, p->seed, err);
    if (!e && is_mixed(p) && !p->data.narrow_gradients)
        e = transformer_keep_gradients_in(&r->model, dtype_wide(p->dtype), err);
    if (e) return e;
    r->model.passes_by = rule->passes_by;
    r->older = calloc((size_t)r->model.params, sizeof *r->older);
    r->state = calloc((size_t)r->model.params * OPTIMIZER_MAX_STATES, sizeof *r->state);
    r->master = calloc((size_t)r->model.params, sizeof *r->master);
    r->gathered = quantised_before_use(p) ? calloc((size_t)r->model.params, sizeof *r->gathered) : NULL;
    bool ok = r->state != NULL && r->older != NULL && r->master != NULL && make_masters(r, p);
    if (ok && quantised_before_use(p)) ok = r->gathered != NULL;
    for (int i = 0; ok && r->gathered && i < r->model.params; i++) ok = copy_tensor(&r->gathered[i], r->model.w[i]);
    for (int i = 0; ok && rule->delayed && i < r->model.params; i++) ok = copy_tensor(&r->older[i], r->model.w[i]);
    for (int i = 0; ok && i < r->model.params; i++)
        for (int s = 0; ok && s < p->optimizer->states; s++) {
            struct tensor *t = &r->state[i * OPTIMIZER_MAX_STATES + s];
            const struct low_rank_parts parts = reference_low_rank(p, &r->model.spec[i]);
            *t = low_rank_parts_state(p->optimizer, &p->hyper, &parts, r->master[i], s);
            t->data = calloc(1, tensor_bytes(*t) + 1);
            ok = t->data != NULL;
        }
    if (!ok) return fail(err, ERR_MEMORY, "no memory for the one-device run's optimizer state");
    return quantised_after_step(p) ? quantise_after_step(p, r->model.w, err) : OK;
}

static void serial_close(struct serial_run *r)
{
    for (int i = 0; r->state && i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    for (int i = 0; r->older && i < r->model.params; i++) free(r->older[i].data);
    for (int i = 0; r->master && i < r->model.params; i++)
        if (r->master[i].data != r->model.w[i].data) free(r->master[i].data);
    for (int i = 0; r->gathered && i < r->model.params; i++) free(r->gathered[i].data);
    free(r->state), free(r->older), free(r->master), free(r->gathered);
    if (r->model.params) transformer_close(&r->model);
}

int reference_parts(const struct plan *p)
{
    return p->mesh.size[TP] * (p->data.tiles > 1 ? p->data.tiles : 1);
}

int reference_gradient_parts(const struct plan *p)
{
    return plan_copies(p) / plan_replicas(p) * p->micros * (1 + p->model.tied);
}

static void close_one(struct reference *r)
{
    serial_close(&r->truth);
    serial_close(&r->twin);
    rule_free(&r->rule);
    free(r->ids), free(r->labels), free(r->within), free(r->counting), free(r->dealt), free(r->name), free(r->micro_of);
    free(r->response), free(r->state_response), free(r->turn), free(r->earlier);
    for (int i = 0; i < 3; i++) free(r->room[i]);
    record_free(&r->record);
    routing_close(&r->routing);
    serial_encoders_close(&r->encoders);
    *r = (struct reference){ 0 };
}

static enum error_code open_one(struct reference *r, const struct plan *plan, struct batch_source source, int replica,
                                struct error *err)
{
    *r = (struct reference){ .plan = plan, .source = source, .replica = replica, .replicas = plan_replicas(plan),
                             .loss_scale = plan_loss_scale(plan) };
    if (plan->batches) r->at = *plan, r->plan = &r->at;
    r->stored = plan->data.narrow_gradients ? reference_gradient_parts(plan) : 0;
    r->perturbation = (struct perturbation){ .seed = ~plan->seed,
                                             .parts = reference_parts(plan),
                                             .gradient_parts = reference_gradient_parts(plan) };
    const size_t tokens = (size_t)(plan_most_sequences(plan) * plan->S);
    r->ids = calloc(tokens, sizeof *r->ids);
    r->within = calloc(tokens, sizeof *r->within);
    r->labels = calloc(tokens, sizeof *r->labels);
    r->counting = calloc(tokens, sizeof *r->counting);
    r->name = calloc(tokens, sizeof *r->name);
    r->micro_of = calloc(tokens, sizeof *r->micro_of);
    r->response = calloc((size_t)model_param_count(&plan->model), sizeof *r->response);
    r->state_response =
        calloc((size_t)model_param_count(&plan->model) * OPTIMIZER_MAX_STATES, sizeof *r->state_response);
    r->turn = calloc((size_t)model_param_count(&plan->model), sizeof *r->turn);
    r->earlier = calloc((size_t)model_param_count(&plan->model), sizeof *r->earlier);
    const size_t choices = tokens * (size_t)(STREAMS(&plan->model) * plan->model.L * plan->model.mixture.k);
    if (plan->load) r->dealt = calloc(choices + 1, sizeof *r->dealt);
    const bool ok = r->ids && r->labels && r->within && r->counting && r->name && r->micro_of &&
                    r->response && r->state_response && r->turn && r->earlier && (r->dealt || !plan->load);
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %zu tokens", tokens);
    if (!e) e = rule_of_plan(&r->rule, plan, replica, err);
    if (!e) e = serial_open(&r->truth, plan, &r->rule, err);
    if (!e) e = serial_open(&r->twin, plan, &r->rule, err);
    if (!e && !reference_make_room(r)) e = fail(err, ERR_MEMORY, "no memory to compare the optimizer's state");
    if (!e) e = serial_encoders_open(&r->encoders, plan->encoders.kinds, plan->model.D, plan->dtype, plan->seed,
                                     plan->optimizer->states, err);
    const bool plain = !draws(plan) && r->rule.updates == 1 && !r->rule.delayed &&
                       r->rule.passes_by == NULL && r->replicas == 1;
    if (!e && !draws(plan)) e = routing_open(&r->routing, &plan->model, (int64_t)tokens, err);
    r->routing.bias = r->truth.model.router_bias;
    if (e) close_one(r);
    if (e) return e;
    r->truth.model.first = r->twin.model.first = r->rule.own.first;
    const struct observer disturb = perturbing_observer(&r->perturbation);
    r->record.model = &r->truth.model.config;
    if (plain) r->truth.model.observer = routing_observer(&r->routing, recording_observer(&r->record));
    else if (r->routing.L > 0) r->truth.model.observer = routing_observer(&r->routing, (struct observer){ 0 });
    r->twin.model.observer = plain ? measuring_observer(&r->record, disturb) : disturb;
    return OK;
}

void reference_close(struct reference *r)
{
    for (int i = 1; r->other && i < r->replicas; i++) close_one(reference_replica(r, i));
    outer_close(r);
    free(r->other);
    close_one(r);
}

enum error_code reference_open(struct reference *r, const struct plan *plan, struct batch_source source,
                               struct error *err)
{
    enum error_code e = open_one(r, plan, source, 0, err);
    if (e) return e;
    r->other = calloc((size_t)r->replicas, sizeof *r->other);
    if (r->other == NULL) e = fail(err, ERR_MEMORY, "no memory for %d replicas", r->replicas);
    for (int i = 1; i < r->replicas && !e; i++) e = open_one(reference_replica(r, i), plan, source, i, err);
    if (!e) e = outer_open(r, err);
    if (e) reference_close(r);
    return e;
}

struct tensor reference_tensor(const struct serial_run *run, int i, enum tensor_kind kind)
{
    switch (kind) {
    case KIND_GRADIENT: case KIND_EXACT_GRADIENT: return run->model.g[i];
    case KIND_WEIGHT: return run->model.w[i];
    case KIND_OLDER_WEIGHT: return run->older[i];
    case KIND_MASTER: return run->master[i];
    case KIND_ANCHOR: return run->anchor[i];
    case KIND_MOMENTUM: return run->momentum[i];
    default: return run->state[i * OPTIMIZER_MAX_STATES + kind - KIND_STATE];
    }
}

void reference_follow_one(struct reference *r, int replica, struct trainer *t, int i, enum tensor_kind kind)
{
    const struct tensor truth = r ? reference_tensor(&r->truth, i, kind) : tensor_none;
    collect_replica(t, replica, i, kind, truth);
    if (r) memcpy(reference_tensor(&r->twin, i, kind).data, truth.data, tensor_bytes(truth));
}

static void follow(struct reference *r, int replica, struct trainer *t)
{
    for (int i = 0; i < model_param_count(&t->plan.model); i++) {
        reference_follow_one(r, replica, t, i, KIND_WEIGHT);
        if (reference_has_masters(&t->plan)) reference_follow_one(r, replica, t, i, KIND_MASTER);
        if (t->schedule.weight_versions > 1) reference_follow_one(r, replica, t, i, KIND_OLDER_WEIGHT);
        for (int k = 0; k < t->plan.optimizer->states; k++)
            reference_follow_one(r, replica, t, i, KIND_STATE + (enum tensor_kind)k);
    }
    const struct model_config *m = &t->plan.model;
    const size_t biases = m->mlp == MLP_MIXTURE ? (size_t)(m->L * mixture_columns(&m->mixture)) * sizeof(double) : 0;
    if (r && biases > 0) {
        memcpy(r->truth.model.router_bias, t->routers.bias, biases);
        memcpy(r->twin.model.router_bias, t->routers.bias, biases);
    }
    if (r) r->step = t->step, r->skipped = t->skipped, r->loss_scale = t->loss_scale;
}

void reference_follow(struct reference *r, struct trainer *t)
{
    struct reference *const own = t->comm->rank == 0 ? r : NULL;
    for (int i = 0; i < plan_replicas(&t->plan); i++) follow(own ? reference_replica(own, i) : NULL, i, t);
    outer_follow(own, t);
    if (own) own->adopts = false;
}

/* The number of optimizer steps so far, in earlier training steps and in this one. */
static int64_t steps_taken(const struct reference *r) { return r->step * r->rule.updates + r->updated - r->skipped; }

static struct step step_of(const struct reference *r, const struct serial_run *run, int i)
{
    const struct hyperparameters *h = &r->plan->hyper;
    const int64_t at = steps_taken(r);
    return (struct step){ .lr = learning_rate(h, at), .t = at,
                          .gradient_scale = clip_scale(h, run->norm) / run->model.loss_scale, .hyper = h,
                          .weight_decay = weight_decay_of(h, run->model.spec[i].decay) };
}

static bool takes_gradients(const struct reference *r) { return r->plan->data.quantise_gradients.bits > 0; }

static struct low_rank_parts low_rank_at(const struct reference *r, int i)
{
    return reference_low_rank(r->plan, &r->truth.model.spec[i]);
}

/* To try a step, one parameter's master, gradient and states are copied, the gradient in the master's format: KINDS
 * tensors, one after another. */
enum { KINDS = 2 + OPTIMIZER_MAX_STATES };

static struct tensor kind_of(const struct serial_run *run, int i, int kind)
{
    struct tensor gradient = run->model.g[i];
    gradient.dtype = run->master[i].dtype;
    return kind == 0 ? run->master[i] : kind == 1 ? gradient : run->state[i * OPTIMIZER_MAX_STATES + kind - 2];
}

static size_t copy_bytes(const struct reference *r, int i)
{
    size_t sum = 0;
    for (int k = 0; k < 2 + r->plan->optimizer->states; k++) sum += tensor_bytes(kind_of(&r->truth, i, k));
    return sum;
}

static void copy_parameter(const struct reference *r, int i, char *memory, struct tensor copy[KINDS])
{
    for (int k = 0; k < 2 + r->plan->optimizer->states; k++) {
        copy[k] = kind_of(&r->truth, i, k);
        copy[k].data = memory;
        memory += tensor_bytes(copy[k]);
        if (k == 1) tensor_convert(copy[k], r->truth.model.g[i]);
        else memcpy(copy[k].data, kind_of(&r->truth, i, k).data, tensor_bytes(copy[k]));
    }
}

/* The norm of the elementwise larger distance of a and b from `from`. */
static double farther(struct tensor from, struct tensor a, struct tensor b)
{
    double sum = 0;
    for (int64_t n = 0; n < tensor_count(from); n++) {
        const double x = tensor_get(from, n), far = fmax(fabs(tensor_get(a, n) - x), fabs(tensor_get(b, n) - x));
        sum += far * far;
    }
    return sqrt(sum);
}

/* Gradients sent as codes are copied from the devices, bit for bit (reference_quantised.c).  Their norm is summed in
 * another order, so clipping may scale them differently: the relative bound of that difference. */
static double clipped_off(const struct reference *r)
{
    return takes_gradients(r) && r->truth.norm > 0 ? reference_norm_bound(r) / r->truth.norm : 0;
}

/* Where the gradients are the devices' own: by how much, relative to it, each result of an optimizer's step may be off.
 * Adam's longest chain of operations has about a dozen; perturb.h says why the root of their number. */
enum { STEP_OPERATIONS = 16 };
static double rounding_of_step(const struct reference *r, int i)
{
    return r->took ? PERTURB_LAMBDA * sqrt(STEP_OPERATIONS) * dtype_unit(r->truth.master[i].dtype) : 0;
}

/* Before the truth's step is taken: try it with each gradient higher and lower by `off` and by the errors of rounding
 * and clipping.  The rounding of the step itself is that of the gradient, or of what is added.
 * Where moments become codes, twice that: the largest number of a block, which decides the codes of all,
 * may move the other way. */
static void respond(struct reference *r, int i, double off, char *memory)
{
    const size_t one = copy_bytes(r, i);
    const struct low_rank_parts p = low_rank_at(r, i);
    const bool projected = low_rank_projects(&p);
    struct tensor plain[KINDS], up[KINDS], down[KINDS];
    const struct step s = step_of(r, &r->truth, i);
    const bool codes = low_rank_has_codes(s.hyper);
    const int stored = r->took ? 0 : r->stored;
    const double clipped = clipped_off(r) + rounding_of_step(r, i), reach = codes ? 2 : 1,
                 u = stored * dtype_unit(r->plan->dtype), step = stored * dtype_step(r->plan->dtype);
    copy_parameter(r, i, memory, plain), copy_parameter(r, i, memory + one, up),
        copy_parameter(r, i, memory + 2 * one, down);
    for (int64_t n = 0; n < tensor_count(plain[1]); n++) {
        const double g = tensor_get(plain[1], n), by = reach * (off + fmax(2 * u * fabs(g), step) + clipped * fabs(g));
        tensor_set(up[1], n, g + by);
        tensor_set(down[1], n, g - by);
    }
    struct tensor *const tried[] = { plain, up, down };
    for (int k = 0; k < 3; k++) galore_parts_step(r->plan->optimizer, &p, tried[k][0], tried[k][1], &tried[k][2], s);
    r->response[i] += projected ? hypot(tensor_distance(up[0], plain[0]), tensor_distance(down[0], plain[0]))
                                : farther(plain[0], up[0], down[0]) +
                                      rounding_of_step(r, i) * tensor_distance(plain[0], r->truth.master[i]);
    /* after the step, plain[1] has N */
    if (projected) r->response[i] += s.hyper->galore_scale * galore_rate(s) * r->turn[i].P * norm_of(r, plain[1]);
    for (int k = 0; k < r->plan->optimizer->states; k++) {
        struct tensor after[3];
        for (int n = 0; n < 3; n++) after[n] = reference_numbers(r, i, k, tried[n][2 + k], n);
        r->state_response[i * OPTIMIZER_MAX_STATES + k] += farther(after[0], after[1], after[2]);
        if (r->took && after[0].data == plain[2 + k].data)      /* numbers, not codes */
            r->state_response[i * OPTIMIZER_MAX_STATES + k] +=
                rounding_of_step(r, i) * tensor_distance(after[0], r->truth.state[i * OPTIMIZER_MAX_STATES + k]);
    }
}

/* Step a parameter; with a delayed rule, first copy the newest weights to the older version. */
static void update(struct reference *r, struct serial_run *run, int i)
{
    if (r->rule.delayed) memcpy(run->older[i].data, run->model.w[i].data, tensor_bytes(run->model.w[i]));
    const struct low_rank_parts p = low_rank_at(r, i);
    galore_parts_step(r->plan->optimizer, &p, run->master[i], run->model.g[i], &run->state[i * OPTIMIZER_MAX_STATES],
                      step_of(r, run, i));
    if (reference_has_masters(r->plan)) tensor_convert(run->model.w[i], run->master[i]);
}

static void forget_gradients(struct reference *r)
{
    transformer_zero_gradients(&r->truth.model);
    transformer_zero_gradients(&r->twin.model);
}

static enum error_code update_both(struct reference *r, struct error *err)
{
    r->updated++;
    const enum error_code e = reference_project(r, steps_taken(r), IN_THE_STEP, err);
    for (int i = 0; i < r->truth.model.params && !e; i++) {
        char *memory = malloc(3 * copy_bytes(r, i));
        if (memory == NULL)
            return fail(err, ERR_MEMORY, "no memory to try the optimizer on %s", r->truth.model.spec[i].name);
        const double off = (r->took ? 0 : gradient_reach(r, i)) + r->turn[i].R;
        /* respond tries the step on copies of the truth's tensors, so the truth steps last. */
        update(r, &r->twin, i);
        respond(r, i, off, memory);
        update(r, &r->truth, i);
        free(memory);
    }
    forget_gradients(r);
    return e;
}

bool reference_overflows(const struct reference *r) { return r->loss_scale.interval > 0 && !isfinite(r->truth.norm); }

/* As the language model, without weight decay. */
static void update_encoders(struct reference *r)
{
    struct step step = step_of(r, &r->truth, 0);
    step.weight_decay = 0;
    for (int m = 0; m < r->encoders.kinds; m++)
        optimizer_step(r->plan->optimizer, r->encoders.w[m], r->encoders.g[m], r->encoders.state[m], step);
}

static enum error_code update_one(struct reference *r, struct error *err)
{
    const bool taken = loss_scale_update(&r->loss_scale, !isfinite(r->truth.norm));
    const enum error_code e = taken ? update_both(r, err) : OK;
    if (taken) update_encoders(r);
    if (taken) transformer_move_biases(&r->truth.model), transformer_move_biases(&r->twin.model);
    if (!taken) forget_gradients(r), r->skipped++;
    r->step++;
    r->updated = 0;
    return e;
}

enum error_code reference_update(struct reference *r, struct error *err)
{
    enum error_code e = OK;
    if (r->plan->optimizer->infers) return r->step++, OK;
    for (int i = 0; i < r->replicas && r->adopts; i++) forget_gradients(reference_replica(r, i));
    if (r->adopts) return OK;
    for (int i = 0; i < r->replicas && !e; i++) e = update_one(reference_replica(r, i), err);
    if (!e) outer_update(r);
    return e;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void exchange_versions(struct serial_run *run)
{
    struct tensor *const newest = run->model.w;
    run->model.w = run->older;
    run->older = newest;
}

/* The weights for a pass, as devices have them after gathering. */
static enum error_code gather(const struct reference *r, struct serial_run *run, struct error *err)
{
    for (int i = 0; i < run->model.params; i++)
        memcpy(run->gathered[i].data, run->model.w[i].data, tensor_bytes(run->model.w[i]));
    return quantise_before_use(r->plan, run->gathered, err);
}

static void exchange_gathered(struct serial_run *run)
{
    struct tensor *const kept = run->model.w;
    if (run->gathered) run->model.w = run->gathered, run->gathered = kept;
}

void reference_pack(const struct reference *r, struct serial_run *run)
{
    run->model.packed = r->plan->packed ? r->within : NULL;
}

/* The gradients for this optimizer step: labels of sequences that count for other steps are ignored. */
static enum error_code gradients(struct reference *r, struct serial_run *run, struct error *err)
{
    double loss;
    run->model.seed = dropout_seed(r->plan->seed, r->step);
    run->model.loss_scale = r->loss_scale.scale;
    record_rewind(&r->record);
    if (r->rule.delayed) exchange_versions(run);
    reference_pack(r, run);
    enum error_code e = run->gathered ? gather(r, run, err) : OK;
    exchange_gathered(run);
    run->model.patch = r->plan->encoders.kinds ? r->encoders.at : NULL;
    run->model.patches = r->encoders.rows, run->model.d_patches = r->encoders.d_rows;
    /* The twin takes the truth's choices of experts: another choice is no error of rounding. */
    run->model.route = r->routing.L > 0 && (run == &r->twin || r->routing.deciding) ? r->routing.experts : r->dealt;
    if (!e) e = transformer_forward(&run->model, r->ids, r->counting, r->rule.own.count, r->plan->S, &loss, err);
    if (!e && !r->plan->optimizer->infers) transformer_backward(&run->model);
    run->model.packed = NULL;
    exchange_gathered(run);
    if (r->rule.delayed) exchange_versions(run);
    if (e) return e;
    const int64_t counted = r->counted + run->model.counted;
    /* The loss of a step is the mean over the labels of all its optimizer steps. */
    run->loss = (run->loss * (double)r->counted + loss * (double)run->model.counted) / (double)(counted ? counted : 1);
    return r->record.error.code ? fail(err, r->record.error.code, "%s", r->record.error.text) : OK;
}

static double token_loss(const struct transformer *m, int64_t n)
{
    return log(tensor_get(m->total, n)) + tensor_get(m->top, n) - tensor_get(m->hit, n);
}

double reference_spread(const struct reference *r)
{
    const struct transformer *a = &r->truth.model, *b = &r->twin.model;
    double sum = 0;
    for (int64_t n = 0; n < a->B * a->S; n++)
        if (r->counting[n] != IGNORE_LABEL) sum += fabs(token_loss(b, n) - token_loss(a, n));
    return sum;
}

/* The embeddings of a step's clips; what is a clip has no label. */
static enum error_code encode(struct reference *r, struct error *err)
{
    const struct plan *p = r->plan;
    if (p->encoders.kinds == 0) return OK;
    const enum error_code e =
        serial_encoders_forward(&r->encoders, r->truth.model.ops, p->seed, r->step, p->B, p->S, err);
    if (!e) clips_mark(&r->encoders.clips, 0, p->B * p->S, r->ids, r->labels);
    return e;
}

static enum error_code encode_back(struct reference *r, struct error *err)
{
    for (int m = 0; m < r->encoders.kinds; m++) memset(r->encoders.g[m].data, 0, tensor_bytes(r->encoders.g[m]));
    return serial_encoders_backward(&r->encoders, r->truth.model.ops, err);
}

static void measure_norm(struct serial_run *run)
{
    run->norm = transformer_gradient_norm(&run->model) / run->model.loss_scale;
}

static enum error_code another_twin(struct reference *r, struct error *err)
{
    const double loss = r->twin.loss;
    r->twins++;
    twins_keep(r);
    /* The twin repeats a pass whose labels are counted already. */
    r->counted -= r->truth.model.counted;
    enum error_code e = gradients(r, &r->twin, err);
    r->counted += r->truth.model.counted;
    r->twin.loss = loss;
    if (!e) e = reference_project_twin(r, steps_taken(r) + 1, BEFORE_REDUCTION, err);
    if (e) return e;
    measure_norm(&r->twin);
    const double spread = fmax(r->pass_spread, reference_spread(r));
    r->loss_spread += spread - r->pass_spread;
    r->pass_spread = spread;
    return OK;
}

enum error_code reference_another_twin(struct reference *r, bool *more, struct error *err)
{
    enum error_code e = OK;
    *more = !draws(r->plan) && r->twins < MOST_TWINS;
    for (int i = 0; i < r->replicas && *more && !e; i++) e = another_twin(reference_replica(r, i), err);
    return e;
}

enum error_code reference_adopts_overflow(struct reference *r, double norm, struct error *err)
{
    const bool differs = r->loss_scale.interval > 0 && (isfinite(norm) != 0) == reference_overflows(r);
    bool more = differs;
    enum error_code e = OK;
    /* Twins are added until one of them overflows, or not, as the devices did. */
    while (more && !e && (isfinite(norm) != 0) != (isfinite(r->twin.norm) != 0))
        e = reference_another_twin(r, &more, err);
    r->adopts = differs && more;
    return e;
}

/* Set which labels count, and which tokens routers judge, for an optimizer step of this step. */
static void take_update(struct reference *r, int update)
{
    const struct model_config *c = &r->plan->model;
    const bool judges = c->mlp == MLP_MIXTURE && (r->rule.updates > 1 || c->mixture.balance.over == OVER_MICROBATCH);
    for (int64_t n = 0; n < r->rule.own.count * r->plan->S; n++) {
        const bool counts = r->rule.update_of[n / r->plan->S] == update;
        r->counting[n] = counts ? r->labels[n] : IGNORE_LABEL;
        r->micro_of[n] = counts ? r->name[n] : TOKEN_NOT_JUDGED;
    }
    r->truth.model.micro_of = r->twin.model.micro_of = judges ? r->micro_of : NULL;
}

/* The gradients of truth and twin. */
static enum error_code pass(struct reference *r, struct error *err)
{
    const bool own_routes = r->routing.L > 0 && !r->routing.deciding;
    enum error_code e = gradients(r, &r->truth, err);
    if (!e) e = encode_back(r, err);
    if (!e && own_routes) routing_keep(&r->routing, &r->truth.model);
    twins_begin(r);
    if (!e) e = gradients(r, &r->twin, err);
    if (!e && own_routes) routing_measure(&r->routing, &r->truth.model, &r->twin.model);
    return e;
}

/* Whether the devices have taken the step already, with other choices of experts than the truth's own. */
static bool differs_from_devices(struct reference *r)
{
    struct routing *const to = &r->routing;
    const int64_t k = to->k, rows = plan_stream_rows(r->plan), first = r->rule.own.first * r->plan->S;
    for (int64_t l = 0; l < to->L && r->chosen; l++)
        memcpy(routing_of_layer(to, to->theirs, (int)l), r->chosen + (l * rows + first) * k,
               (size_t)(to->N * k) * sizeof *to->theirs);
    return r->chosen && to->L > 0 && routing_differs(to);
}

static enum error_code gradients_of(struct reference *r, int update, struct error *err)
{
    const double before[] = { r->truth.loss, r->twin.loss };
    take_update(r, update);
    enum error_code e = pass(r, err);
    if (!e && differs_from_devices(r)) {
        /* The pass is repeated with the devices' choices of experts, where rounding explains them. */
        r->truth.loss = before[0], r->twin.loss = before[1];
        forget_gradients(r);
        routing_begin(&r->routing);
        e = pass(r, err);
        r->routing.deciding = false;
    }
    if (!e) e = reference_project(r, steps_taken(r) + 1, BEFORE_REDUCTION, err);
    if (e) return e;
    measure_norm(&r->truth), measure_norm(&r->twin);
    r->pass_spread = reference_spread(r);
    r->loss_spread += r->pass_spread;
    r->counted += r->truth.model.counted;
    return OK;
}

/* With a batch plan: set the sequences of this step. */
static enum error_code take_step(struct reference *r, struct error *err)
{
    if (r->plan->batches == NULL) return OK;
    plan_take_step(&r->at, r->step);
    rule_free(&r->rule);
    const enum error_code e = rule_of_plan(&r->rule, r->plan, r->replica, err);
    r->truth.model.passes_by = r->twin.model.passes_by = r->rule.passes_by;
    return e;
}

/* Deal the load of this step to the rule's rows. */
static enum error_code deal(struct reference *r, struct error *err)
{
    const struct model_config *c = &r->plan->model;
    const int64_t first = r->rule.own.first * r->plan->S, rows = r->rule.own.count * r->plan->S * STREAMS(c);
    enum error_code e = OK;
    for (int64_t l = 0; l < c->L && r->dealt && !e; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE)
            e = load_deal(r->plan->load, c, r->plan->S, r->step, l, first, rows, r->dealt + l * rows * c->mixture.k,
                          err);
    return e;
}

/* Number the microbatches of this step's tokens, whose samples may decide them. */
static enum error_code name_microbatches(struct reference *r, struct error *err)
{
    const struct mixture_config *m = &r->plan->model.mixture;
    if (r->plan->model.mlp != MLP_MIXTURE || m->balance.over != OVER_MICROBATCH) return OK;
    struct plan now = *r->plan;
    now.ids = r->ids, now.within = now.packed ? r->within : NULL;
    return plan_name_microbatches(&now, r->name, err);
}

static void keep_own(const struct reference *r, int32_t *of_batch)
{
    const int64_t S = r->plan->S;
    memmove(of_batch, of_batch + r->rule.own.first * S, (size_t)(r->rule.own.count * S) * sizeof *of_batch);
}

/* Read the whole batch, which decides microbatches, and keep the rule's sequences of it. */
static enum error_code read_batch(struct reference *r, struct error *err)
{
    r->source.fill(r->source.context, r->step, 0, r->plan->B, r->ids, r->labels, r->plan->packed ? r->within : NULL);
    const enum error_code e = name_microbatches(r, err);
    keep_own(r, r->ids), keep_own(r, r->labels), keep_own(r, r->within), keep_own(r, r->name);
    return e;
}

static enum error_code gradients_one(struct reference *r, struct error *err)
{
    enum error_code e = take_step(r, err);
    if (!e) e = deal(r, err);
    if (!e) e = read_batch(r, err);
    if (e) return e;
    r->counted = 0;
    r->took = false;
    routing_start_step(&r->routing);
    r->loss_spread = r->truth.loss = r->twin.loss = 0;
    memset(r->response, 0, (size_t)r->truth.model.params * sizeof *r->response);
    memset(r->turn, 0, (size_t)r->truth.model.params * sizeof *r->turn);
    memset(r->state_response, 0, (size_t)r->truth.model.params * OPTIMIZER_MAX_STATES * sizeof *r->state_response);
    if (draws(r->plan)) return reference_losses(r, err);
    e = encode(r, err);
    for (int u = 0; u < r->rule.updates && !e; u++) {
        if (u > 0) e = update_both(r, err);
        if (!e) e = gradients_of(r, u, err);
    }
    return e;
}

enum error_code reference_gradients(struct reference *r, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < r->replicas && !e; i++) e = gradients_one(reference_replica(r, i), err);
    return e;
}

enum error_code reference_gradients_after(struct reference *r, const int32_t *chosen, struct error *err)
{
    for (int i = 0; i < r->replicas; i++) reference_replica(r, i)->chosen = chosen;
    const enum error_code e = reference_gradients(r, err);
    for (int i = 0; i < r->replicas; i++) reference_replica(r, i)->chosen = NULL;
    return e;
}

enum error_code reference_take_routes(struct reference *r, struct error *err)
{
    routing_begin(&r->routing);
    forget_gradients(r);
    const enum error_code e = reference_gradients(r, err);
    r->routing.deciding = false;
    return e;
}
