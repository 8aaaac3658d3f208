/* reference.c -- the one-device run and its twin: opening, a step's gradients, the optimizer's step, following
 * devices.
 *
 * The truth is the one-device run without errors.  The twin is the same run with random errors of the size of rounding;
 * its distance from the truth gives the bounds.  A replica is a copy of the model that trains apart from the others.
 * On rank 0 verify/cases/case.c, run/session.c and run/golden.c open and close the reference; compare.c and watch.c
 * compute its steps.  Errors are ERR_MEMORY, ERR_PLAN for a tensor that no probe knows, and ERR_CHECK from a projection
 * without singular vectors.  A failed reference_open leaves nothing to close; after a failed step reference_close frees
 * all.
 * Bounds are in reference_bounds.c, projections in reference_low_rank.c, outer steps in reference_outer.c. */
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_bounds.h"
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "emulated_devices/verify/reference/reference_outer.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/trained.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copy a tensor into new memory.  @return whether there was memory. */
static bool copy_tensor(struct tensor *copy, struct tensor t)
{
    *copy = t;
    copy->data = malloc(tensor_bytes(t));
    if (copy->data) memcpy(copy->data, t.data, tensor_bytes(t));
    return copy->data != NULL;
}

static bool is_mixed(const struct plan *plan) { return dtype_is_narrow(plan->dtype); }
static bool draws(const struct plan *plan) { return optimizer_draws(plan->optimizer); }

bool reference_has_masters(const struct plan *plan)
{
    return !plan->optimizer->infers && (is_mixed(plan) || quantised_after_step(plan));
}

/* The initial values of a parameter in the format of masters, rounded to its weights.  @return NULL without memory. */
static void *draw_master(struct serial_run *run, const struct plan *plan, int i)
{
    struct tensor m = run->model.w[i];
    m.dtype = dtype_wide(plan->dtype);
    m.data = malloc(tensor_bytes(m));
    if (m.data == NULL) return NULL;
    param_init(&run->model.spec[i], plan->seed, m.dtype, 0, tensor_count(m), m.data);
    tensor_convert(run->model.w[i], m);
    return m.data;
}

/* Masters are the weights themselves or copies: fp32 masters of 16-bit weights.  Inference starts from the same weights
 * as training, and keeps no masters. */
static bool make_masters(struct serial_run *run, const struct plan *plan)
{
    for (int i = 0; i < run->model.params; i++) {
        run->master[i] = run->model.w[i];
        if (!reference_has_masters(plan) && !is_mixed(plan)) continue;
        void *const drawn = draw_master(run, plan, i);
        if (drawn == NULL) return false;
        if (reference_has_masters(plan)) run->master[i].data = drawn, run->master[i].dtype = dtype_wide(plan->dtype);
        else free(drawn);
    }
    return true;
}

/* Open one serial model with the devices' initial weights: masters, states, and copies for delayed or quantised
 * weights.  On an error serial_close frees what is there. */
static enum error_code serial_open(struct serial_run *run, const struct plan *plan, const struct rule *rule,
                                   struct error *err)
{
    enum error_code e = transformer_open(&run->model, &plan->model, plan->dtype, plan->seed, err);
    if (!e && is_mixed(plan) && !plan->data.narrow_gradients)
        e = transformer_keep_gradients_in(&run->model, run->model.ops->sums, err);
    if (e) return e;
    run->model.passes_by = rule->passes_by;
    run->older = calloc((size_t)run->model.params, sizeof *run->older);
    run->state = calloc((size_t)run->model.params * OPTIMIZER_MAX_STATES, sizeof *run->state);
    run->master = calloc((size_t)run->model.params, sizeof *run->master);
    run->gathered = quantised_before_use(plan) ? calloc((size_t)run->model.params, sizeof *run->gathered) : NULL;
    bool ok = run->state != NULL && run->older != NULL && run->master != NULL && make_masters(run, plan);
    if (ok && quantised_before_use(plan)) ok = run->gathered != NULL;
    /* Only plans that gather codes before use need a second set of weights. */
    for (int i = 0; ok && run->gathered && i < run->model.params; i++)
        ok = copy_tensor(&run->gathered[i], run->model.w[i]);
    /* A delayed rule starts with two equal versions: W(-1) = W(0). */
    for (int i = 0; ok && rule->delayed && i < run->model.params; i++)
        ok = copy_tensor(&run->older[i], run->model.w[i]);
    for (int i = 0; ok && i < run->model.params; i++)
        for (int s = 0; ok && s < plan->optimizer->states; s++) {
            struct tensor *t = &run->state[i * OPTIMIZER_MAX_STATES + s];
            const struct low_rank_parts parts = reference_low_rank(plan, &run->model.spec[i]);
            *t = low_rank_parts_state(plan->optimizer, &plan->hyper, &parts, run->master[i], s);
            t->data = calloc(1, tensor_bytes(*t) + 1);
            ok = t->data != NULL;
        }
    if (!ok) return fail(err, ERR_MEMORY, "no memory for the one-device run's optimizer state");
    e = serial_encoders_open(&run->encoders, plan->encoders.kinds, plan->model.D, run->model.ops, plan->seed,
                             plan->optimizer->states, err);
    if (e) return e;
    /* Devices gather the codes of their initial masters, too. */
    return quantised_after_step(plan) ? quantise_after_step(plan, run->model.w, err) : OK;
}

/* Free one serial model, also one that was opened in part.  A master that is the weight itself is freed with the
 * model. */
static void serial_close(struct serial_run *run)
{
    for (int i = 0; run->state && i < run->model.params * OPTIMIZER_MAX_STATES; i++) free(run->state[i].data);
    for (int i = 0; run->older && i < run->model.params; i++) free(run->older[i].data);
    for (int i = 0; run->master && i < run->model.params; i++)
        if (run->master[i].data != run->model.w[i].data) free(run->master[i].data);
    for (int i = 0; run->gathered && i < run->model.params; i++) free(run->gathered[i].data);
    free(run->state), free(run->older), free(run->master), free(run->gathered);
    serial_encoders_close(&run->encoders);
    if (run->model.params) transformer_close(&run->model);
}

/* With sections the largest of theirs. */
static int most_parts(const struct plan *plan, int (*parts)(const struct plan *))
{
    int most = 1;
    for (int i = 0; i < plan->sections->count; i++)
        if (parts(&plan->sections->at[i]) > most) most = parts(&plan->sections->at[i]);
    return most;
}

int reference_parts(const struct plan *plan)
{
    if (plan->sections) return most_parts(plan, reference_parts);
    return plan->mesh.size[TP] * (plan->data.tiles > 1 ? plan->data.tiles : 1);
}

int reference_gradient_parts(const struct plan *plan)
{
    if (plan->sections) return most_parts(plan, reference_gradient_parts);
    return plan_copies(plan) / plan_replicas(plan) * plan->micros * (1 + plan->model.tied);
}

/* Free one replica; all members become 0, so a second call does nothing. */
static void close_one(struct reference *reference)
{
    serial_close(&reference->truth);
    serial_close(&reference->twin);
    rule_free(&reference->rule);
    free(reference->ids), free(reference->labels), free(reference->within), free(reference->counting),
        free(reference->dealt), free(reference->name), free(reference->micro_of);
    free(reference->response), free(reference->state_response), free(reference->turn), free(reference->earlier);
    for (int i = 0; i < 3; i++) free(reference->room[i]);
    record_free(&reference->record);
    routing_close(&reference->routing);
    clips_free(&reference->clips);
    *reference = (struct reference){ 0 };
}

/* Open one replica: its rule, truth, twin, records and routing.  On an error everything is closed again. */
static enum error_code open_one(struct reference *reference, const struct plan *plan,
                                struct batch_source source, int replica, struct error *err)
{
    *reference = (struct reference){ .plan = plan, .source = source, .replica = replica,
                                    .replicas = plan_replicas(plan),
                             .loss_scale = plan_loss_scale(plan) };
    /* A batch plan changes with the step, so this run has a copy of the plan that it may set. */
    if (plan->batches) reference->at = *plan, reference->plan = &reference->at;
    /* Narrow gradients are stored in 16 bits after each microbatch: the bound grows with their number. */
    reference->stored = plan->data.narrow_gradients ? reference_gradient_parts(plan) : 0;
    reference->perturbation = (struct perturbation){ .seed = ~plan->seed,
                                             .parts = reference_parts(plan),
                                             .gradient_parts = reference_gradient_parts(plan) };
    const size_t tokens = (size_t)(plan_most_sequences(plan) * plan->S);
    reference->ids = calloc(tokens, sizeof *reference->ids);
    reference->within = calloc(tokens, sizeof *reference->within);
    reference->labels = calloc(tokens, sizeof *reference->labels);
    reference->counting = calloc(tokens, sizeof *reference->counting);
    reference->name = calloc(tokens, sizeof *reference->name);
    reference->micro_of = calloc(tokens, sizeof *reference->micro_of);
    reference->response = calloc((size_t)model_param_count(&plan->model), sizeof *reference->response);
    reference->state_response =
        calloc((size_t)model_param_count(&plan->model) * OPTIMIZER_MAX_STATES, sizeof *reference->state_response);
    reference->turn = calloc((size_t)model_param_count(&plan->model), sizeof *reference->turn);
    reference->earlier = calloc((size_t)model_param_count(&plan->model), sizeof *reference->earlier);
    /* dealt [L, rows, k], with all streams of a model that has several. */
    const size_t choices = tokens * (size_t)(STREAMS(&plan->model) * plan->model.L * plan->model.mixture.k);
    if (plan->load) reference->dealt = calloc(choices + 1, sizeof *reference->dealt);
    const bool ok = reference->ids && reference->labels && reference->within && reference->counting && reference->name
        && reference->micro_of &&
                    reference->response && reference->state_response && reference->turn && reference->earlier
                        && (reference->dealt || !plan->load);
    enum error_code e = ok ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %zu tokens", tokens);
    if (!e) e = rule_of_plan(&reference->rule, plan, replica, err);
    if (!e) e = serial_open(&reference->truth, plan, &reference->rule, err);
    if (!e) e = serial_open(&reference->twin, plan, &reference->rule, err);
    if (!e && !reference_make_room(reference)) e = fail(err, ERR_MEMORY, "no memory to compare the optimizer's state");
    /* Activations are recorded in plain training alone: elsewhere passes of different weights would share one
     * record. */
    const bool plain = !draws(plan) && reference->rule.updates == 1 && !reference->rule.delayed &&
                       reference->rule.passes_by == NULL && reference->replicas == 1;
    if (!e && !draws(plan)) e = routing_open(&reference->routing, &plan->model, (int64_t)tokens, err);
    reference->routing.bias = reference->truth.model.router_bias;
    if (e) close_one(reference);
    if (e) return e;
    /* A replica's sequences are numbered as in the whole batch, because dropout depends on the number. */
    reference->truth.model.first = reference->twin.model.first = reference->rule.own.first;
    const struct observer disturb = perturbing_observer(&reference->perturbation);
    reference->record.model = &reference->truth.model.config;
    /* The truth records after its routing has decided.  The twin is measured where the truth was recorded, else only
     * disturbed. */
    if (plain) reference->truth.model.observer = routing_observer(&reference->routing,
                                                                  recording_observer(&reference->record));
    else if (reference->routing.L > 0)
        reference->truth.model.observer = routing_observer(&reference->routing, (struct observer){ 0 });
    reference->twin.encoders.observer = disturb;
    reference->twin.model.observer = plain ? measuring_observer(&reference->record, disturb) : disturb;
    return OK;
}

void reference_close(struct reference *reference)
{
    /* The first replica goes last: it has the list of the others. */
    for (int i = 1; reference->other && i < reference->replicas; i++) close_one(reference_replica(reference, i));
    outer_close(reference);
    free(reference->other);
    close_one(reference);
}

enum error_code reference_open(struct reference *reference, const struct plan *plan, struct batch_source source,
                               struct error *err)
{
    enum error_code e = open_one(reference, plan, source, 0, err);
    if (e) return e;
    reference->other = calloc((size_t)reference->replicas, sizeof *reference->other);
    if (reference->other == NULL) e = fail(err, ERR_MEMORY, "no memory for %d replicas", reference->replicas);
    for (int i = 1; i < reference->replicas && !e; i++)
        e = open_one(reference_replica(reference, i), plan, source, i, err);
    if (!e) e = outer_open(reference, err);
    if (e) reference_close(reference);
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

void reference_follow_one(struct reference *reference, int replica, struct trainer *trainer, int i,
                          enum tensor_kind kind)
{
    const struct tensor truth = reference ? reference_tensor(&reference->truth, i, kind) : tensor_none;
    collect_replica(trainer, replica, i, kind, truth);
    if (reference) memcpy(reference_tensor(&reference->twin, i, kind).data, truth.data, tensor_bytes(truth));
}

/* Set one replica's weights, masters, states, biases and counters to the devices'. All devices must call this in the
 * same order; elsewhere than on rank 0 the reference is NULL. */
static void reference_reference_follow(struct reference *reference, int replica, struct trainer *trainer)
{
    for (int i = 0; i < model_param_count(&trainer->plan.model); i++) {
        reference_follow_one(reference, replica, trainer, i, KIND_WEIGHT);
        if (reference_has_masters(&trainer->plan)) reference_follow_one(reference, replica, trainer, i, KIND_MASTER);
        if (trainer->schedule.weight_versions > 1)
            reference_follow_one(reference, replica, trainer, i, KIND_OLDER_WEIGHT);
        for (int k = 0; k < trainer->plan.optimizer->states; k++)
            reference_follow_one(reference, replica, trainer, i, KIND_STATE + (enum tensor_kind)k);
    }
    const struct model_config *m = &trainer->plan.model;
    /* Every device has all biases, so rank 0 copies its own without a message. */
    const size_t biases = m->mlp == MLP_MIXTURE ? (size_t)(m->L * mixture_columns(&m->mixture)) * sizeof(double) : 0;
    if (reference && biases > 0) {
        memcpy(reference->truth.model.router_bias, trainer->routers.bias, biases);
        memcpy(reference->twin.model.router_bias, trainer->routers.bias, biases);
    }
    if (reference) reference->step = trainer->step, reference->skipped = trainer->skipped,
        reference->loss_scale = trainer->loss_scale;
}

void reference_follow(struct reference *reference, struct trainer *trainer)
{
    struct reference *const own = trainer->comm->rank == 0 ? reference : NULL;
    reference_follow_encoders(own, trainer);
    for (int i = 0; i < plan_replicas(&trainer->plan); i++)
        reference_reference_follow(own ? reference_replica(own, i) : NULL, i, trainer);
    outer_follow(own, trainer);
    if (own) own->adopts = false;
}

/* The number of optimizer steps so far, in earlier training steps and in this one. */
static int64_t steps_taken(const struct reference *reference)
{
    return reference->step * reference->rule.updates + reference->updated - reference->skipped;
}

/* Sums that do not round have no bounds, and so no twin. */
static bool has_twin(const struct reference *reference) { return !reference->plan->model.exact; }

/* This is the optimizer's step for parameter i, with rate and clipping of this moment.  The gradient is divided by
 * the loss scale. */
static struct step reference_step_of(const struct reference *reference, const struct serial_run *run, int i)
{
    const struct hyperparameters *h = &reference->plan->hyper;
    const int64_t at = steps_taken(reference);
    const bool along = draws(reference->plan) && !has_twin(reference);          /* reference_zeroth.c */
    return (struct step){ .lr = learning_rate(h, at), .t = at, .hyper = h,
                          .gradient_scale = along ? run->slope : clip_scale(h, run->norm) / run->model.loss_scale,
                          .weight_decay = weight_decay_of(h, run->model.spec[i].decay) };
}

static bool takes_gradients(const struct reference *reference)
{
    return reference->plan->data.quantise_gradients.bits > 0;
}

static struct low_rank_parts low_rank_at(const struct reference *reference, int i)
{
    return reference_low_rank(reference->plan, &reference->truth.model.spec[i]);
}

/* To try a step, one parameter's master, gradient and states are copied, the gradient in the master's format: KINDS
 * tensors, one after another. */
enum { KINDS = 2 + OPTIMIZER_MAX_STATES };

/* A copied parameter has these tensors: 0 is the master, 1 the gradient, from 2 on the states. */
static struct tensor kind_of(const struct serial_run *run, int i, int kind)
{
    struct tensor gradient = run->model.g[i];
    gradient.dtype = run->master[i].dtype;
    return kind == 0 ? run->master[i] : kind == 1 ? gradient : run->state[i * OPTIMIZER_MAX_STATES + kind - 2];
}

/* A copy takes the bytes of master, gradient in the master's format, and states. */
static size_t copy_bytes(const struct reference *reference, int i)
{
    size_t sum = 0;
    for (int k = 0; k < 2 + reference->plan->optimizer->states; k++)
        sum += tensor_bytes(kind_of(&reference->truth, i, k));
    return sum;
}

/* Fill one copy in `memory`, whose size is copy_bytes.  The gradient is converted to the master's format. */
static void copy_parameter(const struct reference *reference, int i, char *memory, struct tensor copy[KINDS])
{
    for (int k = 0; k < 2 + reference->plan->optimizer->states; k++) {
        copy[k] = kind_of(&reference->truth, i, k);
        copy[k].data = memory;
        memory += tensor_bytes(copy[k]);
        if (k == 1) tensor_convert(copy[k], reference->truth.model.g[i]);
        else memcpy(copy[k].data, kind_of(&reference->truth, i, k).data, tensor_bytes(copy[k]));
    }
}

/* The result is the norm of the elementwise larger distance of a and b from `from`. */
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
static double clipped_off(const struct reference *reference)
{
    return takes_gradients(reference) && reference->truth.norm > 0
           ? reference_norm_bound(reference) / reference->truth.norm : 0;
}

/* Where the gradients are the devices' own: by how much, relative to it, each result of an optimizer's step may be off.
 * Adam's longest chain of operations has about a dozen; perturb.h says why the root of their number. */
enum { STEP_OPERATIONS = 16 };
static double rounding_of_step(const struct reference *reference, int i)
{
    return reference->took ? PERTURB_LAMBDA * sqrt(STEP_OPERATIONS) * dtype_unit(reference->truth.master[i].dtype) : 0;
}

/* Before the truth's step is taken: try it with each gradient higher and lower by `off` and by the errors of rounding
 * and clipping.  The rounding of the step itself is that of the gradient, or of what is added.
 * Where moments become codes, twice that: the largest number of a block, which decides the codes of all,
 * may move the other way. */
static void respond(struct reference *reference, int i, double off, char *memory)
{
    /* memory holds three copies: the plain step, gradients moved up, gradients moved down. */
    const size_t one = copy_bytes(reference, i);
    const struct low_rank_parts p = low_rank_at(reference, i);
    const bool projected = low_rank_projects(&p);
    struct tensor plain[KINDS], up[KINDS], down[KINDS];
    const struct step s = reference_step_of(reference, &reference->truth, i);
    const bool codes = low_rank_has_codes(s.hyper);
    const int stored = reference->took ? 0 : reference->stored;
    const double clipped = clipped_off(reference) + rounding_of_step(reference, i), reach = codes ? 2 : 1,
                 u = stored * dtype_unit(reference->plan->dtype), step = stored * dtype_step(reference->plan->dtype);
    copy_parameter(reference, i, memory, plain), copy_parameter(reference, i, memory + one, up),
        copy_parameter(reference, i, memory + 2 * one, down);
    for (int64_t n = 0; n < tensor_count(plain[1]); n++) {
        /* by = reach (off + max(2 u |g|, one step of the format) + clipping |g|): how far element g may be off. */
        const double g = tensor_get(plain[1], n), by = reach * (off + fmax(2 * u * fabs(g), step) + clipped * fabs(g));
        tensor_set(up[1], n, g + by);
        tensor_set(down[1], n, g - by);
    }
    /* All three copies take the step; their distances are the response. */
    struct tensor *const tried[] = { plain, up, down };
    for (int k = 0; k < 3; k++)
        galore_parts_step(reference->plan->optimizer, &p, tried[k][0], tried[k][1], &tried[k][2], s);
    reference->response[i] += projected ? hypot(tensor_distance(up[0], plain[0]), tensor_distance(down[0], plain[0]))
                                : farther(plain[0], up[0], down[0]) +
                                      rounding_of_step(reference, i) * tensor_distance(plain[0],
                                                                                       reference->truth.master[i]);
    /* after the step, plain[1] has N */
    if (projected) reference->response[i] += s.hyper->galore_scale * galore_rate(s) * reference->turn[i].P
        * norm_of(reference, plain[1]);
    for (int k = 0; k < reference->plan->optimizer->states; k++) {
        struct tensor after[3];
        for (int n = 0; n < 3; n++) after[n] = reference_numbers(reference, i, k, tried[n][2 + k], n);
        reference->state_response[i * OPTIMIZER_MAX_STATES + k] += farther(after[0], after[1], after[2]);
        if (reference->took && after[0].data == plain[2 + k].data)      /* numbers, not codes */
            reference->state_response[i * OPTIMIZER_MAX_STATES + k] +=
                rounding_of_step(reference, i) * tensor_distance(after[0],
                                                                 reference->truth.state[i * OPTIMIZER_MAX_STATES + k]);
    }
}

/* Step a parameter; with a delayed rule, first copy the newest weights to the older version. */
static void reference_reference_update(struct reference *reference, struct serial_run *run, int i)
{
    if (reference->rule.delayed) memcpy(run->older[i].data, run->model.w[i].data, tensor_bytes(run->model.w[i]));
    const struct low_rank_parts p = low_rank_at(reference, i);
    galore_parts_step(reference->plan->optimizer, &p, run->master[i], run->model.g[i],
                      &run->state[i * OPTIMIZER_MAX_STATES], reference_step_of(reference, run, i));
    if (reference_has_masters(reference->plan)) tensor_convert(run->model.w[i], run->master[i]);
}

static void forget_gradients(struct reference *reference)
{
    transformer_zero_gradients(&reference->truth.model);
    transformer_zero_gradients(&reference->twin.model);
}

/* Take the optimizer's step in truth and twin, parameter by parameter, and zero both gradients.  Each parameter's
 * response is measured on the way.  On ERR_MEMORY some parameters have been stepped: the run must end. */
static enum error_code update_both(struct reference *reference, struct error *err)
{
    reference->updated++;
    const enum error_code e = reference_project(reference, steps_taken(reference), IN_THE_STEP, err);
    for (int i = 0; i < reference->truth.model.params && !e; i++) {
        if (!param_trains(&reference->plan->model, &reference->truth.model.spec[i])) continue;
        if (!has_twin(reference)) {
            reference_reference_update(reference, &reference->truth, i);
            continue;
        }
        char *memory = malloc(3 * copy_bytes(reference, i));
        if (memory == NULL)
            return fail(err, ERR_MEMORY, "no memory to try the optimizer on %s", reference->truth.model.spec[i].name);
        const double off = (reference->took ? 0 : gradient_reach(reference, i)) + reference->turn[i].R;
        /* respond tries the step on copies of the truth's tensors, so the truth steps last. */
        reference_reference_update(reference, &reference->twin, i);
        respond(reference, i, off, memory);
        reference_reference_update(reference, &reference->truth, i);
        free(memory);
    }
    forget_gradients(reference);
    return e;
}

bool reference_overflows(const struct reference *reference) { return reference->loss_scale.interval > 0
                                                             && !isfinite(reference->truth.norm); }

/* End one replica's training step: step the optimizer, or skip the step where gradients are not finite.  The loss
 * scale decides, by the truth's norm. */
static enum error_code update_one(struct reference *reference, struct error *err)
{
    const bool taken = loss_scale_update(&reference->loss_scale, !isfinite(reference->truth.norm));
    enum error_code e = taken ? update_both(reference, err) : OK;
    if (taken && !e)
        e = reference_step_encoders(reference, reference_step_of(reference, &reference->truth, 0),
                                    reference_step_of(reference, &reference->twin, 0), err);
    if (taken) transformer_move_biases(&reference->truth.model), transformer_move_biases(&reference->twin.model);
    if (!taken) forget_gradients(reference), reference->skipped++;
    reference->step++;
    reference->updated = 0;
    return e;
}

enum error_code reference_update(struct reference *reference, struct error *err)
{
    enum error_code e = OK;
    if (reference->plan->optimizer->infers) return reference->step++, OK;
    /* After an adopted overflow nothing is computed: reference_follow sets everything to the devices' state. */
    for (int i = 0; i < reference->replicas && reference->adopts; i++)
        forget_gradients(reference_replica(reference, i));
    if (reference->adopts) return OK;
    for (int i = 0; i < reference->replicas && !e; i++) e = update_one(reference_replica(reference, i), err);
    if (!e) outer_update(reference);
    return e;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Give a pass the older weights; a second call takes them back. */
static void exchange_versions(struct serial_run *run)
{
    struct tensor *const newest = run->model.w;
    run->model.w = run->older;
    run->older = newest;
}

/* The weights for a pass, as devices have them after gathering. */
static enum error_code reference_gather(const struct reference *reference, struct serial_run *run, struct error *err)
{
    for (int i = 0; i < run->model.params; i++)
        memcpy(run->gathered[i].data, run->model.w[i].data, tensor_bytes(run->model.w[i]));
    return quantise_before_use(reference->plan, run->gathered, err);
}

/* Give a pass the gathered weights; a second call takes them back.  Without such weights nothing changes. */
static void exchange_gathered(struct serial_run *run)
{
    struct tensor *const kept = run->model.w;
    if (run->gathered) run->model.w = run->gathered, run->gathered = kept;
}

void reference_pack(const struct reference *reference, struct serial_run *run)
{
    run->model.packed = reference->plan->packed ? reference->within : NULL;
}

/* The gradients for this optimizer step: labels of sequences that count for other steps are ignored. */
static enum error_code gradients(struct reference *reference, struct serial_run *run, struct error *err)
{
    double loss;
    /* Truth and twin have the same seed, so dropout drops the same elements in both. */
    run->model.seed = dropout_seed(reference->plan->seed, reference->step);
    run->model.loss_scale = reference->loss_scale.scale;
    record_rewind(&reference->record);
    if (reference->rule.delayed) exchange_versions(run);
    reference_pack(reference, run);
    enum error_code e = run->gathered ? reference_gather(reference, run, err) : OK;
    exchange_gathered(run);
    if (!e) e = reference_encode(reference, run, err);
    /* The twin takes the truth's choices of experts: another choice is no error of rounding. */
    run->model.route = reference->routing.L > 0 && (run == &reference->twin || reference->routing.deciding)
        ? reference->routing.experts : reference->dealt;
    if (!e) e = transformer_forward(&run->model, reference->ids, reference->counting, reference->rule.own.count,
                                    reference->plan->S, &loss, err);
    if (!e && !reference->plan->optimizer->infers) transformer_backward(&run->model);
    if (!e) e = reference_encode_back(reference, run, err);
    run->model.packed = NULL;
    exchange_gathered(run);
    if (reference->rule.delayed) exchange_versions(run);
    if (e) return e;
    const int64_t counted = reference->counted + run->model.counted;
    /* The loss of a step is the mean over the labels of all its optimizer steps. */
    run->loss = (run->loss * (double)reference->counted + loss * (double)run->model.counted)
        / (double)(counted ? counted : 1);
    return reference->record.error.code
           ? fail(err, reference->record.error.code, "%s", reference->record.error.text) : OK;
}

/* Usually loss(n) = log(total) + top - hit: the sum of exponentials, the largest logit, and the label's logit. */
static double token_loss(const struct transformer *model, int64_t n)
{
    const struct row_sums sums = { model->top, model->total, model->hit };
    if (model->row_loss) {
        const double number = row_number(model->row_loss, &sums, n);
        return model->row_loss->of_row(model->row_loss->context, model->first * model->S + n, number, NULL);
    }
    return log(tensor_get(model->total, n)) + tensor_get(model->top, n) - tensor_get(model->hit, n);
}

double reference_spread(const struct reference *reference)
{
    const struct transformer *a = &reference->truth.model, *b = &reference->twin.model;
    double sum = 0;
    for (int64_t n = 0; n < a->B * a->S; n++)
        if (reference->counting[n] != IGNORE_LABEL) sum += fabs(token_loss(b, n) - token_loss(a, n));
    return sum;
}

/* Compute the last pass of one replica once more in the twin, with other errors.  The earlier twins' largest
 * distances are kept; loss and norm of the twin are those of the last one. */
static enum error_code another_twin(struct reference *reference, struct error *err)
{
    const double loss = reference->twin.loss;
    reference->twins++;
    twins_keep(reference);
    /* The twin repeats a pass whose labels are counted already. */
    reference->counted -= reference->truth.model.counted;
    enum error_code e = gradients(reference, &reference->twin, err);
    reference->counted += reference->truth.model.counted;
    reference->twin.loss = loss;
    if (!e) e = reference_project_twin(reference, steps_taken(reference) + 1, BEFORE_REDUCTION, err);
    if (e) return e;
    reference->twin.norm = reference_gradient_norm(&reference->twin);
    /* The larger spread of both twins counts; only the growth is added to the step's sum. */
    const double spread = fmax(reference->pass_spread, reference_spread(reference));
    reference->loss_spread += spread - reference->pass_spread;
    reference->pass_spread = spread;
    return OK;
}

enum error_code reference_another_twin(struct reference *reference, bool *more, struct error *err)
{
    enum error_code e = OK;
    *more = has_twin(reference) && !draws(reference->plan) && reference->twins < MOST_TWINS;
    for (int i = 0; i < reference->replicas && *more && !e; i++) e = another_twin(reference_replica(reference, i), err);
    return e;
}

enum error_code reference_adopts_overflow(struct reference *reference, double norm, struct error *err)
{
    /* differs: exactly one of devices and truth has an overflow. */
    const bool differs = reference->loss_scale.interval > 0 && (isfinite(norm) != 0) == reference_overflows(reference);
    bool more = differs;
    enum error_code e = OK;
    /* Twins are added until one of them overflows, or not, as the devices did. */
    while (more && !e && (isfinite(norm) != 0) != (isfinite(reference->twin.norm) != 0))
        e = reference_another_twin(reference, &more, err);
    reference->adopts = differs && more;
    return e;
}

/* Set which labels count, and which tokens routers judge, for an optimizer step of this step. */
static void take_update(struct reference *reference, int update)
{
    const struct model_config *c = &reference->plan->model;
    const bool judges = c->mlp == MLP_MIXTURE
        && (reference->rule.updates > 1 || c->mixture.balance.over == OVER_MICROBATCH);
    /* counting [N] and micro_of [N]: tokens of other optimizer steps neither count for the loss nor are judged by
     * routers. */
    for (int64_t n = 0; n < reference->rule.own.count * reference->plan->S; n++) {
        const bool counts = reference->rule.update_of[n / reference->plan->S] == update;
        reference->counting[n] = counts ? reference->labels[n] : IGNORE_LABEL;
        reference->micro_of[n] = counts ? reference->name[n] : TOKEN_NOT_JUDGED;
    }
    reference->truth.model.micro_of = reference->twin.model.micro_of = judges ? reference->micro_of : NULL;
}

/* Compute the gradients of truth and twin. */
static enum error_code reference_pass(struct reference *reference, struct error *err)
{
    const bool own_routes = reference->routing.L > 0 && !reference->routing.deciding;
    enum error_code e = gradients(reference, &reference->truth, err);
    if (!e && own_routes) routing_keep(&reference->routing, &reference->truth.model);
    twins_begin(reference);
    if (e || !has_twin(reference)) return e;
    e = gradients(reference, &reference->twin, err);
    if (!e && own_routes) routing_measure(&reference->routing, &reference->truth.model, &reference->twin.model);
    return e;
}

/* Whether the devices have taken the step already, with other choices of experts than the truth's own. */
static bool differs_from_devices(struct reference *reference)
{
    struct routing *const to = &reference->routing;
    const int64_t k = to->k, rows = plan_stream_rows(reference->plan),
        first = reference->rule.own.first * reference->plan->S;
    for (int64_t l = 0; l < to->L && reference->chosen; l++)
        memcpy(routing_of_layer(to, to->theirs, (int)l), reference->chosen + (l * rows + first) * k,
               (size_t)(to->N * k) * sizeof *to->theirs);
    return reference->chosen && to->L > 0 && routing_differs(to);
}

/* Compute the gradients for one optimizer step of the training step, with the devices' choices where these are
 * known.  The norms of both runs and the spread of their losses follow. */
static enum error_code gradients_of(struct reference *reference, int update, struct error *err)
{
    const double before[] = { reference->truth.loss, reference->twin.loss };
    take_update(reference, update);
    enum error_code e = reference_pass(reference, err);
    if (!e && differs_from_devices(reference)) {
        /* The pass is repeated with the devices' choices of experts, where rounding explains them. */
        reference->truth.loss = before[0], reference->twin.loss = before[1];
        forget_gradients(reference);
        routing_begin(&reference->routing);
        e = reference_pass(reference, err);
        reference->routing.deciding = false;
    }
    if (!e) e = reference_project(reference, steps_taken(reference) + 1, BEFORE_REDUCTION, err);
    if (e) return e;
    reference->truth.norm = reference_gradient_norm(&reference->truth);
    reference->twin.norm = reference_gradient_norm(&reference->twin);
    reference->pass_spread = has_twin(reference) ? reference_spread(reference) : 0;
    reference->loss_spread += reference->pass_spread;
    reference->counted += reference->truth.model.counted;
    return OK;
}

/* With a batch plan: set the sequences of this step. */
static enum error_code take_step(struct reference *reference, struct error *err)
{
    if (reference->plan->batches == NULL) return OK;
    plan_take_step(&reference->at, reference->step);
    rule_free(&reference->rule);
    const enum error_code e = rule_of_plan(&reference->rule, reference->plan, reference->replica, err);
    reference->truth.model.passes_by = reference->twin.model.passes_by = reference->rule.passes_by;
    return e;
}

/* Deal the load of this step to the rule's rows. */
static enum error_code deal(struct reference *reference, struct error *err)
{
    const struct model_config *c = &reference->plan->model;
    const int64_t first = reference->rule.own.first * reference->plan->S,
        rows = reference->rule.own.count * reference->plan->S * STREAMS(c);
    enum error_code e = OK;
    for (int64_t l = 0; l < c->L && reference->dealt && !e; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE)
            e = load_deal(reference->plan->load, c, reference->plan->S, reference->step, l, first, rows,
                          reference->dealt + l * rows * c->mixture.k, err);
    return e;
}

/* Number the microbatches of this step's tokens, whose samples may decide them. */
static enum error_code name_microbatches(struct reference *reference, struct error *err)
{
    const struct mixture_config *m = &reference->plan->model.mixture;
    if (reference->plan->model.mlp != MLP_MIXTURE || m->balance.over != OVER_MICROBATCH) return OK;
    struct plan now = *reference->plan;
    now.ids = reference->ids, now.within = now.packed ? reference->within : NULL;
    return plan_name_microbatches(&now, reference->name, err);
}

/* Move the replica's tokens to the front: of_batch [B S] becomes [own S]. */
static void keep_own(const struct reference *reference, int32_t *of_batch)
{
    const int64_t S = reference->plan->S;
    memmove(of_batch, of_batch + reference->rule.own.first * S,
            (size_t)(reference->rule.own.count * S) * sizeof *of_batch);
}

/* Read the whole batch, which decides microbatches, and keep the rule's sequences of it. */
static enum error_code read_batch(struct reference *reference, struct error *err)
{
    reference->source.fill(reference->source.context, reference->step, 0, reference->plan->B, reference->ids,
                           reference->labels, reference->plan->packed ? reference->within : NULL);
    enum error_code e = name_microbatches(reference, err);
    if (!e) e = reference_find_clips(reference, err);
    keep_own(reference, reference->ids), keep_own(reference, reference->labels), keep_own(reference, reference->within),
        keep_own(reference, reference->name);
    return e;
}

/* Compute one replica's gradients of the next step.  Its batch is read, the last step's results are cleared, then
 * passes follow.  All optimizer steps but the last are taken here. */
static enum error_code gradients_one(struct reference *reference, struct error *err)
{
    enum error_code e = take_step(reference, err);
    if (!e) e = deal(reference, err);
    if (!e) e = read_batch(reference, err);
    if (e) return e;
    reference->counted = 0;
    reference->took = false;
    routing_start_step(&reference->routing);
    reference->loss_spread = reference->truth.loss = reference->twin.loss = 0;
    memset(reference->response, 0, (size_t)reference->truth.model.params * sizeof *reference->response);
    memset(reference->turn, 0, (size_t)reference->truth.model.params * sizeof *reference->turn);
    memset(reference->state_response, 0, (size_t)reference->truth.model.params * OPTIMIZER_MAX_STATES
           * sizeof *reference->state_response);
    /* An optimizer without a backward pass needs two losses alone. */
    if (draws(reference->plan)) return reference_losses(reference, err);
    for (int u = 0; u < reference->rule.updates && !e; u++) {
        if (u > 0) e = update_both(reference, err);
        if (!e) e = gradients_of(reference, u, err);
    }
    return e;
}

enum error_code reference_gradients(struct reference *reference, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < reference->replicas && !e; i++) e = gradients_one(reference_replica(reference, i), err);
    return e;
}

enum error_code reference_gradients_after(struct reference *reference, const int32_t *chosen, struct error *err)
{
    /* The choices belong to the caller: no pointer to them stays after this call. */
    for (int i = 0; i < reference->replicas; i++) reference_replica(reference, i)->chosen = chosen;
    const enum error_code e = reference_gradients(reference, err);
    for (int i = 0; i < reference->replicas; i++) reference_replica(reference, i)->chosen = NULL;
    return e;
}

enum error_code reference_take_routes(struct reference *reference, struct error *err)
{
    routing_begin(&reference->routing);
    forget_gradients(reference);
    const enum error_code e = reference_gradients(reference, err);
    reference->routing.deciding = false;
    return e;
}
