/* compare.c -- compares a step's choices, activations, loss, gradients, weights and states with the one-device run.
 * All devices call these functions together: each sends its pieces, and rank 0 alone has the reference and the
 * result.  Errors of memory or of messages end all devices through comm_give_up or comm_agree.  cases/case.c and
 * watch.c call these functions.  The code is ERR_MEMORY or ERR_COMM. */
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/compare.h"
#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/machine/cores.h"
#include "ref/machine/threads.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- other twins ------------------------------------------------------------------------------------------------- */

/* The other devices sleep meanwhile, so the reference may use all cores. */
static enum error_code on_all_cores(enum error_code (*compute)(struct reference *, struct error *),
                                    struct reference *ref, const struct comm *comm, struct error *err)
{
    threads_use(cores_usable());
    const enum error_code e = compute(ref, err);
    threads_use(comm->cores);
    return e;
}

/* Before an error above its bound counts as a failure: another twin.  @return whether there was one, so that bounds may
 * be larger now. */
static bool another_twin(const struct comparison *comparison, struct reference *ref, struct comm *comm, double error,
                         double bound)
{
    struct error err;
    bool more = false;
    if (comparison->failed || comparison->diverged || !isfinite(error) || !(error > bound)) return false;
    /* More twins cost whole passes, so an error far above its bound is not given more than a few. */
    if (ref->twins >= FEW_TWINS && error > HOPELESS * bound) return false;
    threads_use(cores_usable());
    const enum error_code e = reference_another_twin(ref, &more, &err);
    threads_use(comm->cores);
    if (e) comm_give_up(comm, &err);
    return more;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* This is the context of compare_activation, and serves all tensors of a step. */
struct visit {
    struct comparison *result;
    const struct probes *probes;
    struct reference *ref;              /* rank 0 */
    const struct recording *record;
    const struct model_config *model;
    int64_t step;
    bool ignored;
    int seen;                           /* the tensor of the last device */
};

/* Report the choices that differ in a layer, before the weights that depend on them.  `first` is the replica's first
 * row in the batch. */
static void compare_found(const struct visit *visit, int layer, int64_t first, struct routing_found *routing_found)
{
    struct comparison *c = visit->result;
    char place[64];
    if (routing_found->differ == 0) return;
    struct worst found = { .rank = probes_device_of(visit->probes, layer, first + routing_found->token),
                          .step = visit->step,
                           .error = routing_found->margin, .bound = routing_found->bound };
    snprintf(place, sizeof place, "router, token %lld", (long long)(first + routing_found->token));
    activation_name(found.tensor, sizeof found.tensor, place, layer, (int)visit->model->L);
    c->choices_differ += routing_found->differ;
    comparison_choice(c, found, routing_found->own, routing_found->theirs);
    routing_found->differ = 0;                      /* once, not once a device */
}

/* Report what a replica's routers, and its drops by capacity, have found in one layer.  Both findings are consumed,
 * so a second call for the same layer reports nothing. */
static void compare_choices(const struct visit *visit, struct reference *ref, int layer)
{
    struct routing *const r = &ref->routing;
    const int64_t first = ref->rule.own.first * ref->plan->S;
    compare_found(visit, layer, first, &r->found[layer]);
    if (r->drops.capacity > 0) compare_found(visit, layer, first, &r->drops.found[layer]);
}

/* Judge the one-device run's own tensor beside the golden file's. */
static void compare_with_file(struct comparison *comparison, struct worst *of, const char *kind, struct worst found,
                              struct tensor own, struct tensor file)
{
    struct sums sums = { .expected = tensor_count(file) };
    sums_add(&sums, own, 0, file, 0, tensor_count(own));
    found.of_file = true;
    comparison_tensor(comparison, of, kind, found, &sums, sqrt(squared_distance(file, tensor_none)));
}

/* Judge one activation on one device; probes_collect calls this on rank 0 with that device's sums.  The loop
 * measures another twin while the error is above the bound; a golden file's bound does not grow. */
static void compare_activation(void *context, int tensor, int rank, const struct sums *sums)
{
    struct visit *v = context;
    struct comparison *c = v->result;
    const struct recorded *a = &v->record->all[tensor];
    const bool routes = v->ref->routing.L > 0 && !a->gradient && strcmp(a->name, "router.weights") == 0;
    if (routes) compare_choices(v, v->ref, a->layer);
    const bool failed = c->failed;
    struct worst *const of = a->gradient ? &c->activation_gradient : &c->activation;
    const char *const kind = a->gradient ? "activation gradient" : "activation";
    double bound = recorded_bound(v->record, a);
    if (v->ignored) return;
    struct worst found = { .step = v->step, .bound = a->known };
    activation_name(found.tensor, sizeof found.tensor, a->name, a->layer, (int)v->model->L);
    /* The one-device run comes before the first device. */
    if (tensor_present(a->file) && v->seen != tensor) compare_with_file(c, of, kind, found, a->truth, a->file);
    v->seen = tensor;
    while (a->known == 0 && another_twin(c, v->ref, v->probes->trainer->comm, held_error(sums, a->norm), bound))
        bound = recorded_bound(v->record, a);
    c->shown++, c->unrounded += sums->unrounded > 0;
    found.rank = rank, found.bound = bound;
    comparison_tensor(c, of, kind, found, sums, a->norm);
    if (!failed && c->failed) activation_made_by(c->from, sizeof c->from, v->model, a->name, a->layer, a->gradient);
}

/* ---- one parameter --------------------------------------------------------------------------------------------- */

/* This is the truth of one parameter's tensor for one replica, and how exactly devices must agree with it. */
struct held_to {
    struct tensor truth;
    double size, bound;                 /* norm of the whole truth; its relative bound */
    bool of_file;                       /* the truth is a golden file's, and so is the bound */
};

/* This is all that the pieces of one parameter's tensor have in common while devices send them. */
struct job {
    struct comparison *result;
    struct reference *ref;
    struct worst *worst;
    const char *kind, *of;              /* of: "exp_avg of " */
    struct held_to *to;                 /* [replicas] rank 0: truth and bound of each replica */
    struct comm *comm;
    int64_t step;
    bool ignored;                       /* the truth is not finite, so the step is skipped */
    int parameter, state;               /* state: -1: not the optimizer's */
    enum tensor_kind tensor;
};

/* These number the reference's rooms for states held as bytes: one for a replica's truth, one for a device's piece. */
enum { TRUTHS_ROOM, DEVICES_ROOM };

/* A device's piece stands beside the truth, with the sums over the piece's elements so far. */
struct beside { struct tensor truth, piece; struct sums sums; };

/* Add one contiguous run to the sums: run.piece counts in the device's piece, run.whole in the whole tensor. */
static void add_run(void *context, struct run run)
{
    struct beside *b = context;
    sums_add(&b->sums, b->piece, run.piece, b->truth, run.whole, run.length);
}

/* The result is the relative bound of one parameter's tensor, by its kind.  The bound is recomputed at each call, as
 * another twin may have widened the bound. */
static double bound_of(const struct reference *ref, int i, enum tensor_kind kind)
{
    switch (kind) {
    case KIND_GRADIENT:
    case KIND_EXACT_GRADIENT: return reference_gradient_bound(ref, i);
    case KIND_WEIGHT: return reference_weight_bound(ref, i);
    case KIND_MASTER: return reference_master_bound(ref, i);
    case KIND_ANCHOR: return reference_anchor_bound(ref, i);
    case KIND_MOMENTUM: return reference_momentum_bound(ref, i);
    default: return reference_state_bound(ref, i, (int)(kind - KIND_STATE));
    }
}

static bool is_gradient(enum tensor_kind kind) { return kind == KIND_GRADIENT || kind == KIND_EXACT_GRADIENT; }

/* Judge one device's piece of one parameter's tensor; collect_pieces calls this on rank 0 for device after device. */
static void compare_piece(void *context, const struct piece *piece)
{
    struct job *j = context;
    struct held_to *const to = &j->to[piece->replica];
    if (j->ignored) return;
    struct beside b = { .truth = to->truth, .piece = piece->data, .sums.expected = piece->kept.count };
    if (j->state >= 0) b.piece = reference_numbers(j->ref, j->parameter, j->state, piece->data, DEVICES_ROOM);
    /* A state that is held as codes has become numbers in another room; these lie together as one run. */
    if (b.piece.data == piece->data.data)
        layout_each_run_within(piece->layout, piece->kept.first, piece->kept.count, add_run, &b);
    else add_run(&b, (struct run){ .length = b.sums.expected = tensor_count(b.piece) });
    const bool may_grow = is_gradient(j->tensor) && !to->of_file;
    while (may_grow && another_twin(j->result, j->ref, j->comm, held_error(&b.sums, to->size), to->bound))
        to->bound = bound_of(reference_replica(j->ref, piece->replica), j->parameter, j->tensor);
    struct worst found = { .bound = to->bound, .rank = piece->rank, .step = j->step };
    snprintf(found.tensor, sizeof found.tensor, "%.15s%.79s", j->of, piece->spec->name);
    comparison_tensor(j->result, j->worst, j->kind, found, &b.sums, to->size);
}

/* Judge the one-device run's tensor of one parameter beside the golden file's, if the file has one that decides. */
static void compare_file(struct trainer *trainer, struct reference *ref, int i, enum tensor_kind kind,
                         const struct job *job)
{
    struct error err;
    struct tensor file = job->to[0].truth;
    double bound = 0;
    bool has;
    if (golden_truth_tensor(ref->golden, ref, i, kind, &file, &bound, &has, &err)) comm_give_up(trainer->comm, &err);
    struct worst found = { .bound = bound, .step = job->step };
    snprintf(found.tensor, sizeof found.tensor, "%.15s%.79s", job->of, ref->truth.model.spec[i].name);
    if (has) compare_with_file(job->result, job->worst, job->kind, found, job->to[0].truth, file);
}

/* Compare one parameter's tensor of one kind on all devices.  The call is collective: rank 0 prepares truth and
 * bound of each replica, then every device sends its pieces.  Tensors that all replicas share have one truth. */
static void compare_one(struct trainer *trainer, struct reference *ref, int i, enum tensor_kind kind, struct job job)
{
    struct error err;
    const bool here = trainer->comm->rank == 0;
    const struct golden_truth *const beside = here && trainer->plan.model.exact ? ref->golden : NULL;
    const int replicas = here && !kind_is_common(kind) ? ref->replicas : 1;
    job.ref = ref, job.comm = trainer->comm, job.parameter = i, job.tensor = kind, job.state = (int)kind - KIND_STATE;
    job.to = here ? calloc((size_t)replicas, sizeof *job.to) : NULL;
    if (here && job.to == NULL)
        comm_give_up(trainer->comm, (fail(&err, ERR_MEMORY, "no memory to compare %d replicas", replicas), &err));
    /* A golden file may replace the one-device run's truth and bound; the size is the norm of whichever is taken. */
    for (int r = 0; r < replicas && here; r++) {
        const struct reference *of = reference_replica(ref, r);
        job.to[r].bound = bound_of(of, i, kind);
        job.to[r].truth = reference_tensor(&of->truth, i, kind);
        if (job.state >= 0) job.to[r].truth = reference_numbers(of, i, job.state, job.to[r].truth, TRUTHS_ROOM);
        if (ref->golden && !beside && golden_truth_tensor(ref->golden, ref, i, kind, &job.to[r].truth, &job.to[r].bound,
                                                          &job.to[r].of_file, &err))
            comm_give_up(trainer->comm, &err);
        job.to[r].size = sqrt(squared_distance(job.to[r].truth, tensor_none));
    }
    /* The trainer counts a step when weights have been stepped: its gradients are seen before that. */
    job.step = trainer->step + is_gradient(kind);
    if (beside && !job.ignored) compare_file(trainer, ref, i, kind, &job);
    collect_pieces(trainer, i, kind, compare_piece, &job);
    free(job.to);
}

/* ---- gradients that are sent quantised --------------------------------------------------------------------------- */

/* Judge how far a device's quantised gradient is from the exact sum.  The piece holds multiples of the proven bound,
 * so no truth is needed. */
static void compare_excess(void *context, const struct piece *piece)
{
    struct job *j = context;
    struct worst found = { .rank = piece->rank, .step = j->step };
    snprintf(found.tensor, sizeof found.tensor, "%.79s", piece->spec->name);
    if (!j->ignored) comparison_excess(j->result, found, piece->data);
}

/* Compare the computed gradients before quantising, and the effect of quantising with its proven bound.  Later the
 * reference continues from the devices' gradients (reference_take_gradients). */
static void compare_quantised(struct trainer *trainer, struct reference *ref, int i, struct job job)
{
    compare_one(trainer, ref, i, KIND_EXACT_GRADIENT, job);
    job.step = trainer->step + 1;
    collect_pieces(trainer, i, KIND_GRADIENT_EXCESS, compare_excess, &job);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Whether no device needs the truth in its step, as no activation is recorded, and the truth waits for the devices'
 * choices of experts. */
static bool waits(const struct trainer *trainer)
{
    const struct plan *p = &trainer->plan;
    const bool records = p->updates == 1 && trainer->schedule.weight_versions == 1 && !p->skips
        && plan_replicas(p) == 1;
    return p->model.mlp == MLP_MIXTURE && !records && !optimizer_draws(p->optimizer);
}

enum error_code compare_begin(struct probes *probes, struct reference *ref, struct error *err)
{
    struct comm *comm = probes->trainer->comm;
    /* All devices read the batch first: their rows decide which parts of the truth each one gets. */
    trainer_read_batch(probes->trainer);                             /* sets each device's rows */
    /* The reference runs on rank 0 while the other devices wait in comm_agree. */
    const bool here = comm->rank == 0 && !waits(probes->trainer);
    enum error_code e = here ? on_all_cores(reference_gradients, ref, comm, err) : OK;
    if (!e && here && ref->golden) e = golden_truth_record(ref->golden, ref, err);
    e = comm_agree(comm, e, err);
    return e ? e : probes_deliver(probes, comm->rank == 0 ? &ref->record : NULL, err);
}

/* After a step of devices for whose choices the one-device run waits, rank 0 computes its own step.  The call is
 * collective; chosen [L, rows, k] exists on rank 0 alone. */
static enum error_code after_devices(struct probes *probes, struct reference *ref, struct error *err)
{
    const struct plan *plan = &probes->trainer->plan;
    struct comm *comm = probes->trainer->comm;
    const bool here = comm->rank == 0;
    const size_t choices = (size_t)(plan->model.L * plan_stream_rows(plan) * plan->model.mixture.k);
    int32_t *const chosen = here ? calloc(choices + 1, sizeof *chosen) : NULL;
    enum error_code e = chosen || !here ? OK : fail(err, ERR_MEMORY, "no memory for %zu choices of experts", choices);
    e = comm_agree(comm, e, err);
    if (e) return e;
    probes_gather_routes(probes, chosen);
    threads_use(here ? cores_usable() : comm->cores);
    if (here) e = reference_gradients_after(ref, chosen, err);
    threads_use(comm->cores);
    free(chosen);
    return comm_agree(comm, e, err);
}

/* Compare choices in all layers and replicas of a run in which devices compare no activations. */
static void compare_all_choices(const struct visit *visit)
{
    for (int i = 0; i < visit->ref->replicas; i++)
        for (int l = 0; l < visit->ref->routing.L; l++) compare_choices(visit, reference_replica(visit->ref, i), l);
}

/* After a step of a mixture: if devices have chosen other experts than the one-device run, it is computed again with
 * their choices, as far as rounding explains them, and everything is compared with that. */
static enum error_code take_routes(struct probes *probes, struct reference *ref, struct error *err)
{
    struct comm *comm = probes->trainer->comm;
    const bool here = comm->rank == 0;
    bool other = false;
    if (probes->routers == 0) return OK;
    if (waits(probes->trainer)) return after_devices(probes, ref, err);
    enum error_code e = OK;
    probes_gather_routes(probes, here ? ref->routing.theirs : NULL);
    if (here) other = routing_differs(&ref->routing);
    if (here && ref->golden) other = golden_truth_leaves(ref->golden, ref) || other;
    if (other) e = on_all_cores(reference_take_routes, ref, comm, err);
    if (other && !e && ref->golden) e = golden_truth_record(ref->golden, ref, err);
    e = comm_agree(comm, e, err);
    if (!e) probes_compare_again(probes, other ? &ref->record : NULL);
    return e;
}

/* Compare what an optimizer without a backward pass computes: two losses, then the slope.  The truth takes the
 * devices' losses before the slope is compared.  So the slope is judged as a function of two given numbers. */
static void compare_sides(struct comparison *comparison, struct reference *ref, const struct step_result *result,
                          int64_t step)
{
    static const char *const name[2] = { "loss at w + eps z", "loss at w - eps z" };
    for (int side = 0; side < 2; side++)
        comparison_number(comparison, &comparison->loss, name[side], result->side[side], ref->truth.side[side],
                          reference_side_bound(ref, side), (struct worst){ .step = step });
    const bool failed = comparison->failed;
    reference_take_sides(ref, result->side);
    comparison_number(comparison, &comparison->norm, "slope", result->slope, ref->truth.slope,
                      reference_slope_bound(ref), (struct worst){ .step = step });
    if (!failed && comparison->failed) comparison->where.on.sides = true;
}

/* One number of the whole model: its bound may grow with another twin. */
struct number {
    const char *name;
    double actual, truth;               /* the device's, the one-device run's */
    double (*bound_of)(const struct reference *);
    bool twins;                         /* whether another twin can be measured */
};

/* Compare a number with the one-device run's, or with the golden file's if that is the better truth.  Another twin
 * may widen the bound, but never that of the file. */
static void compare_number(const struct trainer *trainer, struct reference *ref, struct comparison *comparison,
                           struct worst *of, struct number number)
{
    struct error err;
    const bool exact = trainer->plan.model.exact;
    /* Losses of rows may have both signs: their mean may be near 0, and the bound is that of their sizes. */
    struct worst found = { .step = trainer->step + 1,
                           .absolute = ref->truth.model.row_loss != NULL && of == &comparison->loss };
    double bound = exact ? 0 : number.bound_of(ref), truth = number.truth;
    bool of_file = false;
    if (ref->golden && golden_truth_number(ref->golden, ref, number.name, &truth, &bound, &of_file, &err))
        comm_give_up(trainer->comm, &err);
    /* With exact sums the one-device run is compared with the file, and the device with the one-device run. */
    if (exact && of_file) {
        found.of_file = true;
        comparison_number(comparison, of, number.name, number.truth, truth, bound, found);
        found.of_file = false;
    }
    if (exact) bound = number.bound_of(ref);
    else number.truth = truth;
    while (number.twins && !of_file
           && another_twin(comparison, ref, trainer->comm, fabs(number.actual - number.truth), bound))
        bound = number.bound_of(ref);
    comparison_number(comparison, of, number.name, number.actual, number.truth, bound, found);
}

/* The loss of the step is the mean over all replicas' labels, and its bound is absolute. */
static void compare_loss(const struct trainer *trainer, struct reference *ref, const struct step_result *result,
                         struct comparison *comparison)
{
    compare_number(trainer, ref, comparison, &comparison->loss,
                   (struct number){ "loss", result->loss, reference_loss(ref), reference_loss_bound, true });
}

/* If the truth has taken the devices' gradients, there is nothing left from which another twin could be measured. */
static void compare_norm(const struct trainer *trainer, struct reference *ref, const struct step_result *result,
                         struct comparison *comparison)
{
    compare_number(trainer, ref, comparison, &comparison->norm,
                   (struct number){ "norm", result->norm, reference_norm(ref), reference_norm_bound,
                                    !data_tracks(&trainer->data) });
}

/* Steps are counted from 1, so that a step's gradients and its new weights have the same number.  Weight gradients are
 * completed from the last layer to the first. */
enum error_code compare_gradients(struct probes *probes, struct reference *ref, const struct step_result *result,
                                  struct comparison *comparison, struct error *err)
{
    struct trainer *t = probes->trainer;
    const bool here = t->comm->rank == 0;
    struct visit v = { .result = comparison, .probes = probes, .ref = ref, .model = &t->plan.model,
                      .step = t->step + 1, .seen = -1 };
    /* Choices come first: with other experts everything after them would be another function. */
    enum error_code e = take_routes(probes, ref, err);
    if (e) return e;
    /* Only choices that count were compared: those of skipped layers are left out by the routing. */
    for (int i = 0; here && i < ref->replicas; i++) comparison->choices += reference_replica(ref, i)->routing.compared;
    if (here) e = reference_adopts_overflow(ref, result->norm, err);
    e = comm_agree(t->comm, e, err);
    if (e) return e;
    /* With an overflow the truth's backward pass is not finite: gradients are visited, but not judged. */
    const bool overflow = here && (reference_overflows(ref) || ref->adopts);
    comparison->exact = t->plan.model.exact, comparison->loss_rounds = t->plan.model.mlp == MLP_MIXTURE;
    comparison->beside_file = here && ref->golden;
    comparison_step(comparison, here && ref->loss_scale.interval > 0);
    if (here && optimizer_draws(t->plan.optimizer)) compare_sides(comparison, ref, result, v.step);
    if (optimizer_draws(t->plan.optimizer)) return OK;
    /* The order is that of execution: activations, loss, gradients of activations, gradients of weights, norm. */
    if (here) v.record = &ref->record;
    if (here && waits(t)) compare_all_choices(&v);
    e = probes_collect(probes, false, compare_activation, &v, err);
    if (here) compare_loss(t, ref, result, comparison);
    if (e || t->plan.optimizer->infers) return e;
    v.ignored = overflow;
    if (!e) e = probes_collect(probes, true, compare_activation, &v, err);
    struct trainer *part;
    for (int i = 0; (part = trainer_section(t, i)) != NULL; i++)
        if (trainer_takes_part(part)) data_settle_tracking(&part->data);
    for (int i = model_param_count(&t->plan.model) - 1; i >= 0 && !e; i--) {
        const struct job j = { .result = comparison, .worst = &comparison->gradient, .kind = "gradient", .of = "",
                              .ignored = overflow };
        if (data_tracks(&t->data)) compare_quantised(t, ref, i, j);
        else compare_one(t, ref, i, KIND_GRADIENT, j);
    }
    /* Quantised gradients are taken before the norm is compared, because devices sum the norm of what they have
     * sent.  Otherwise the norm is compared first, with the truth's own gradients. */
    if (!e && data_tracks(&t->data)) e = reference_take_gradients(ref, t, err);
    if (here && !e && !ref->adopts && !(overflow && !isfinite(result->norm))) compare_norm(t, ref, result, comparison);
    if (!e && !data_tracks(&t->data)) e = reference_take_gradients(ref, t, err);
    return e;
}

/* Compare one kind of tensor of all parameters. */
static void compare_all(struct trainer *trainer, struct reference *ref, enum tensor_kind kind, struct job job)
{
    for (int i = 0; i < model_param_count(&trainer->plan.model); i++) compare_one(trainer, ref, i, kind, job);
}

/* The correction biases of this device, rank 0's, are integers' shares: they must be the reference's. */
static void compare_biases(const struct trainer *trainer, const struct reference *ref, struct comparison *comparison)
{
    const struct mixture_config *x = &trainer->plan.model.mixture;
    if (trainer->plan.model.mlp != MLP_MIXTURE || !x->router.biased || trainer->comm->rank != 0) return;
    /* bias [L, columns]: every bias must be equal, as no rounding depends on the order of devices. */
    const int64_t columns = mixture_columns(x);
    for (int64_t i = 0; i < trainer->plan.model.L * columns; i++) {
        const double own = trainer->routers.bias[i], truth = ref->truth.model.router_bias[i];
        char name[96];
        snprintf(name, sizeof name, "h.%lld.router bias of expert %lld", (long long)(i / columns),
                 (long long)(i % columns));
        if (own != truth)
            comparison_number(comparison, &comparison->weight, name, own, truth, 0,
                              (struct worst){ .step = trainer->step });
    }
}

/* In order of execution: the outer momentum, the anchor that it steps, then the replicas' weights, which are set to the
 * anchor. */
enum error_code compare_weights(struct trainer *trainer, struct reference *ref, struct comparison *comparison,
                                struct error *err)
{
    const bool ignored = trainer->comm->rank == 0 && ref->adopts;
    const struct job weight = { .result = comparison, .worst = &comparison->weight, .kind = "weight", .of = "",
                               .ignored = ignored };
    struct job master = weight, anchor = weight, state = weight;
    state.worst = &comparison->state, state.kind = "state";
    master.of = "master of ", anchor.of = "anchor of ", state.of = "outer momentum ";
    if (trainer->data.shards.apart && outer_has_momentum(&trainer->data.outer))
        compare_all(trainer, ref, KIND_MOMENTUM, state);
    if (trainer->data.shards.apart) compare_all(trainer, ref, KIND_ANCHOR, anchor);
    /* The renewal is collective.  Afterwards the truth's weights are the codes' values, so weights must be equal bit
     * for bit. */
    if (quantised_after_step(&trainer->plan)) {
        const enum error_code e = reference_renew(ref, trainer, err);
        if (e) return e;
    }
    compare_all(trainer, ref, KIND_WEIGHT, weight);
    compare_biases(trainer, ref, comparison);
    if (reference_has_masters(&trainer->plan)) compare_all(trainer, ref, KIND_MASTER, master);
    for (int s = 0; s < trainer->plan.optimizer->states; s++) {
        char of[16];
        snprintf(of, sizeof of, "%.10s of ", trainer->plan.optimizer->state_name[s]);
        state.of = of;
        compare_all(trainer, ref, KIND_STATE + (enum tensor_kind)s, state);
    }
    return OK;
}
