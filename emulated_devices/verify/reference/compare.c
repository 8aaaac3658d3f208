#include "emulated_devices/verify/reference/compare.h"
#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/machine/cores.h"
#include "ref/machine/threads.h"
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
static bool another_twin(const struct comparison *c, struct reference *ref, struct comm *comm, double error,
                         double bound)
{
    struct error err;
    bool more = false;
    if (c->failed || c->diverged || !isfinite(error) || !(error > bound)) return false;
    if (ref->twins >= FEW_TWINS && error > HOPELESS * bound) return false;
    threads_use(cores_usable());
    const enum error_code e = reference_another_twin(ref, &more, &err);
    threads_use(comm->cores);
    if (e) comm_give_up(comm, &err);
    return more;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

struct visit {
    struct comparison *result;
    const struct probes *probes;
    struct reference *ref;              /* rank 0 */
    const struct recording *record;
    const struct model_config *model;
    int64_t step;
    bool ignored;
};

/* The choices that differ in a layer, before the weights that depend on them.  first: of the replica's rows. */
static void compare_found(const struct visit *v, int layer, int64_t first, struct routing_found *f)
{
    struct comparison *c = v->result;
    char place[64];
    if (f->differ == 0) return;
    struct worst found = { .rank = probes_device_of(v->probes, layer, first + f->token), .step = v->step,
                           .error = f->margin, .bound = f->bound };
    snprintf(place, sizeof place, "router, token %lld", (long long)(first + f->token));
    activation_name(found.tensor, sizeof found.tensor, place, layer, (int)v->model->L);
    c->choices_differ += f->differ;
    comparison_choice(c, found, f->own, f->theirs);
    f->differ = 0;                      /* once, not once a device */
}

static void compare_choices(const struct visit *v, struct reference *ref, int layer)
{
    struct routing *const r = &ref->routing;
    const int64_t first = ref->rule.own.first * ref->plan->S;
    compare_found(v, layer, first, &r->found[layer]);
    if (r->drops.capacity > 0) compare_found(v, layer, first, &r->drops.found[layer]);
}

static void compare_activation(void *context, int tensor, int rank, const struct sums *s)
{
    const struct visit *v = context;
    struct comparison *c = v->result;
    const struct recorded *a = &v->record->all[tensor];
    const bool routes = v->ref->routing.L > 0 && !a->gradient && strcmp(a->name, "router.weights") == 0;
    if (routes) compare_choices(v, v->ref, a->layer);
    const bool failed = c->failed;
    double bound = recorded_bound(v->record, a);
    if (v->ignored) return;
    while (a->known == 0 && another_twin(c, v->ref, v->probes->trainer->comm, held_error(s, a->norm), bound))
        bound = recorded_bound(v->record, a);
    struct worst found = { .rank = rank, .step = v->step, .bound = bound };
    activation_name(found.tensor, sizeof found.tensor, a->name, a->layer, (int)v->model->L);
    comparison_tensor(c, a->gradient ? &c->activation_gradient : &c->activation,
                      a->gradient ? "activation gradient" : "activation", found, s, a->norm);
    if (!failed && c->failed) activation_made_by(c->from, sizeof c->from, v->model, a->name, a->layer, a->gradient);
}

/* ---- one parameter --------------------------------------------------------------------------------------------- */

struct held_to {
    struct tensor truth;
    double size, bound;                 /* norm of the whole truth; its relative bound */
    bool of_file;                       /* the truth is a golden file's, and so is the bound */
};

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

/* Of r->room: the one for the truth of each replica, and the first one's for what a device has. */
enum { TRUTHS_ROOM, DEVICES_ROOM };

struct beside { struct tensor truth, piece; struct sums sums; };

static void add_run(void *context, struct run r)
{
    struct beside *b = context;
    sums_add(&b->sums, b->piece, r.piece, b->truth, r.whole, r.length);
}

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

static void compare_piece(void *context, const struct piece *p)
{
    struct job *j = context;
    struct held_to *const to = &j->to[p->replica];
    if (j->ignored) return;
    struct beside b = { .truth = to->truth, .piece = p->data, .sums.expected = p->kept.count };
    if (j->state >= 0) b.piece = reference_numbers(j->ref, j->parameter, j->state, p->data, DEVICES_ROOM);
    if (b.piece.data == p->data.data) layout_each_run_within(p->layout, p->kept.first, p->kept.count, add_run, &b);
    else add_run(&b, (struct run){ .length = b.sums.expected = tensor_count(b.piece) });
    const bool may_grow = is_gradient(j->tensor) && !to->of_file;
    while (may_grow && another_twin(j->result, j->ref, j->comm, held_error(&b.sums, to->size), to->bound))
        to->bound = bound_of(reference_replica(j->ref, p->replica), j->parameter, j->tensor);
    struct worst found = { .bound = to->bound, .rank = p->rank, .step = j->step };
    snprintf(found.tensor, sizeof found.tensor, "%.15s%.79s", j->of, p->spec->name);
    comparison_tensor(j->result, j->worst, j->kind, found, &b.sums, to->size);
}

static void compare_one(struct trainer *t, struct reference *ref, int i, enum tensor_kind kind, struct job j)
{
    struct error err;
    const bool here = t->comm->rank == 0;
    const int replicas = here && !kind_is_common(kind) ? ref->replicas : 1;
    j.ref = ref, j.comm = t->comm, j.parameter = i, j.tensor = kind, j.state = (int)kind - KIND_STATE;
    j.to = here ? calloc((size_t)replicas, sizeof *j.to) : NULL;
    if (here && j.to == NULL)
        comm_give_up(t->comm, (fail(&err, ERR_MEMORY, "no memory to compare %d replicas", replicas), &err));
    for (int r = 0; r < replicas && here; r++) {
        const struct reference *of = reference_replica(ref, r);
        j.to[r].bound = bound_of(of, i, kind);
        j.to[r].truth = reference_tensor(&of->truth, i, kind);
        if (j.state >= 0) j.to[r].truth = reference_numbers(of, i, j.state, j.to[r].truth, TRUTHS_ROOM);
        if (ref->golden && golden_truth_tensor(ref->golden, ref, i, kind, &j.to[r].truth, &j.to[r].bound,
                                               &j.to[r].of_file, &err))
            comm_give_up(t->comm, &err);
        j.to[r].size = sqrt(squared_distance(j.to[r].truth, tensor_none));
    }
    j.step = t->step + is_gradient(kind);
    collect_pieces(t, i, kind, compare_piece, &j);
    free(j.to);
}

/* ---- gradients that are sent quantised --------------------------------------------------------------------------- */

static void compare_excess(void *context, const struct piece *p)
{
    struct job *j = context;
    struct worst found = { .rank = p->rank, .step = j->step };
    snprintf(found.tensor, sizeof found.tensor, "%.79s", p->spec->name);
    if (!j->ignored) comparison_excess(j->result, found, p->data);
}

/* Compare the computed gradients before quantising, and the effect of quantising with its proven bound.  Then the
 * reference continues from the devices' gradients. */
static void compare_quantised(struct trainer *t, struct reference *ref, int i, struct job j)
{
    compare_one(t, ref, i, KIND_EXACT_GRADIENT, j);
    j.step = t->step + 1;
    collect_pieces(t, i, KIND_GRADIENT_EXCESS, compare_excess, &j);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Whether no device needs the truth in its step, as no activation is recorded, and the truth waits for the devices'
 * choices of experts. */
static bool waits(const struct trainer *t)
{
    const struct plan *p = &t->plan;
    const bool records = p->updates == 1 && t->schedule.weight_versions == 1 && !p->skips && plan_replicas(p) == 1;
    return p->model.mlp == MLP_MIXTURE && !records && !optimizer_draws(p->optimizer);
}

enum error_code compare_begin(struct probes *p, struct reference *ref, struct error *err)
{
    struct comm *comm = p->trainer->comm;
    trainer_read_batch(p->trainer);                             /* sets each device's rows */
    const bool here = comm->rank == 0 && !waits(p->trainer);
    enum error_code e = here ? on_all_cores(reference_gradients, ref, comm, err) : OK;
    if (!e && here && ref->golden) e = golden_truth_record(ref->golden, ref, err);
    e = comm_agree(comm, e, err);
    return e ? e : probes_deliver(p, comm->rank == 0 ? &ref->record : NULL, err);
}

/* After a step of devices for whose choices the one-device run waits: compute it. */
static enum error_code after_devices(struct probes *p, struct reference *ref, struct error *err)
{
    const struct plan *plan = &p->trainer->plan;
    struct comm *comm = p->trainer->comm;
    const bool here = comm->rank == 0;
    const size_t choices = (size_t)(plan->model.L * plan_stream_rows(plan) * plan->model.mixture.k);
    int32_t *const chosen = here ? calloc(choices + 1, sizeof *chosen) : NULL;
    enum error_code e = chosen || !here ? OK : fail(err, ERR_MEMORY, "no memory for %zu choices of experts", choices);
    e = comm_agree(comm, e, err);
    if (e) return e;
    probes_gather_routes(p, chosen);
    threads_use(here ? cores_usable() : comm->cores);
    if (here) e = reference_gradients_after(ref, chosen, err);
    threads_use(comm->cores);
    free(chosen);
    return comm_agree(comm, e, err);
}

/* Compare choices in all layers and replicas of a run in which devices compare no activations. */
static void compare_all_choices(const struct visit *v)
{
    for (int i = 0; i < v->ref->replicas; i++)
        for (int l = 0; l < v->ref->routing.L; l++) compare_choices(v, reference_replica(v->ref, i), l);
}

/* After a step of a mixture: if devices have chosen other experts than the one-device run, it is computed again with
 * their choices, as far as rounding explains them, and everything is compared with that. */
static enum error_code take_routes(struct probes *p, struct reference *ref, struct error *err)
{
    struct comm *comm = p->trainer->comm;
    const bool here = comm->rank == 0;
    bool other = false;
    if (p->routers == 0) return OK;
    if (waits(p->trainer)) return after_devices(p, ref, err);
    enum error_code e = OK;
    probes_gather_routes(p, here ? ref->routing.theirs : NULL);
    if (here) other = routing_differs(&ref->routing);
    if (here && ref->golden) other = golden_truth_leaves(ref->golden, ref) || other;
    if (other) e = on_all_cores(reference_take_routes, ref, comm, err);
    if (other && !e && ref->golden) e = golden_truth_record(ref->golden, ref, err);
    e = comm_agree(comm, e, err);
    if (!e) probes_compare_again(p, other ? &ref->record : NULL);
    return e;
}

/* Without a backward pass: two losses, and the slope. */
static void compare_sides(struct comparison *c, struct reference *ref, const struct step_result *result,
                          int64_t step)
{
    static const char *const name[2] = { "loss at w + eps z", "loss at w - eps z" };
    for (int side = 0; side < 2; side++)
        comparison_number(c, &c->loss, name[side], result->side[side], ref->truth.side[side],
                          reference_side_bound(ref, side), step);
    const bool failed = c->failed;
    reference_take_sides(ref, result->side);
    comparison_number(c, &c->norm, "slope", result->slope, ref->truth.slope, reference_slope_bound(ref), step);
    if (!failed && c->failed) c->where.on.sides = true;
}

/* One number of the whole model: its bound may grow with another twin. */
struct number {
    const char *name;
    double actual, truth;               /* the device's, the one-device run's */
    double (*bound_of)(const struct reference *);
    bool twins;                         /* whether another twin can be measured */
};

/* Compare it with the one-device run's, or with the golden file's if that is the better truth. */
static void compare_number(const struct trainer *t, struct reference *ref, struct comparison *c, struct worst *of,
                           struct number n)
{
    struct error err;
    double bound = n.bound_of(ref);
    bool of_file = false;
    if (ref->golden && golden_truth_number(ref->golden, ref, n.name, &n.truth, &bound, &of_file, &err))
        comm_give_up(t->comm, &err);
    while (n.twins && !of_file && another_twin(c, ref, t->comm, fabs(n.actual - n.truth), bound))
        bound = n.bound_of(ref);
    comparison_number(c, of, n.name, n.actual, n.truth, bound, t->step + 1);
}

static void compare_loss(const struct trainer *t, struct reference *ref, const struct step_result *result,
                         struct comparison *c)
{
    compare_number(t, ref, c, &c->loss,
                   (struct number){ "loss", result->loss, reference_loss(ref), reference_loss_bound, true });
}

/* If the truth has taken the devices' gradients, there is nothing left from which another twin could be measured. */
static void compare_norm(const struct trainer *t, struct reference *ref, const struct step_result *result,
                         struct comparison *c)
{
    compare_number(t, ref, c, &c->norm,
                   (struct number){ "norm", result->norm, reference_norm(ref), reference_norm_bound,
                                    !data_tracks(&t->data) });
}

/* Steps are counted from 1, so that a step's gradients and its new weights have the same number.  Weight gradients are
 * completed from the last layer to the first. */
enum error_code compare_gradients(struct probes *p, struct reference *ref, const struct step_result *result,
                                  struct comparison *c, struct error *err)
{
    struct trainer *t = p->trainer;
    const bool here = t->comm->rank == 0;
    struct visit v = { .result = c, .probes = p, .ref = ref, .model = &t->plan.model, .step = t->step + 1 };
    enum error_code e = take_routes(p, ref, err);
    if (e) return e;
    for (int i = 0; here && i < ref->replicas; i++) c->choices += reference_replica(ref, i)->routing.compared;
    if (here) e = reference_adopts_overflow(ref, result->norm, err);
    e = comm_agree(t->comm, e, err);
    if (e) return e;
    const bool overflow = here && (reference_overflows(ref) || ref->adopts);
    comparison_step(c, here && ref->loss_scale.interval > 0);
    if (here && optimizer_draws(t->plan.optimizer)) compare_sides(c, ref, result, v.step);
    if (optimizer_draws(t->plan.optimizer)) return OK;
    if (here) v.record = &ref->record;
    if (here && waits(t)) compare_all_choices(&v);
    e = probes_collect(p, false, compare_activation, &v, err);
    if (here) compare_loss(t, ref, result, c);
    if (e || t->plan.optimizer->infers) return e;
    v.ignored = overflow;
    if (!e) e = probes_collect(p, true, compare_activation, &v, err);
    data_settle_tracking(&t->data);
    for (int i = model_param_count(&t->plan.model) - 1; i >= 0 && !e; i--) {
        const struct job j = { .result = c, .worst = &c->gradient, .kind = "gradient", .of = "", .ignored = overflow };
        if (data_tracks(&t->data)) compare_quantised(t, ref, i, j);
        else compare_one(t, ref, i, KIND_GRADIENT, j);
    }
    if (!e && data_tracks(&t->data)) e = reference_take_gradients(ref, t, err);
    if (here && !e && !ref->adopts && !(overflow && !isfinite(result->norm))) compare_norm(t, ref, result, c);
    if (!e && !data_tracks(&t->data)) e = reference_take_gradients(ref, t, err);
    return e;
}

/* Compare one kind of tensor of all parameters. */
static void compare_all(struct trainer *t, struct reference *ref, enum tensor_kind kind, struct job j)
{
    for (int i = 0; i < model_param_count(&t->plan.model); i++) compare_one(t, ref, i, kind, j);
}

/* The correction biases of this device, rank 0's, are integers' shares: they must be the reference's. */
static void compare_biases(const struct trainer *t, const struct reference *ref, struct comparison *c)
{
    const struct mixture_config *x = &t->plan.model.mixture;
    if (t->plan.model.mlp != MLP_MIXTURE || !x->router.biased || t->comm->rank != 0) return;
    const int64_t columns = mixture_columns(x);
    for (int64_t i = 0; i < t->plan.model.L * columns; i++) {
        const double own = t->routers.bias[i], truth = ref->truth.model.router_bias[i];
        char name[96];
        snprintf(name, sizeof name, "h.%lld.router bias of expert %lld", (long long)(i / columns),
                 (long long)(i % columns));
        if (own != truth) comparison_number(c, &c->weight, name, own, truth, 0, t->step);
    }
}

/* In order of execution: the outer momentum, the anchor that it steps, then the replicas' weights, which are set to the
 * anchor. */
enum error_code compare_weights(struct trainer *t, struct reference *ref, struct comparison *c, struct error *err)
{
    const bool ignored = t->comm->rank == 0 && ref->adopts;
    const struct job weight = { .result = c, .worst = &c->weight, .kind = "weight", .of = "", .ignored = ignored };
    struct job master = weight, anchor = weight, state = weight;
    state.worst = &c->state, state.kind = "state";
    master.of = "master of ", anchor.of = "anchor of ", state.of = "outer momentum ";
    if (t->data.shards.apart && outer_has_momentum(&t->data.outer)) compare_all(t, ref, KIND_MOMENTUM, state);
    if (t->data.shards.apart) compare_all(t, ref, KIND_ANCHOR, anchor);
    if (data_renews_quantised(&t->data.request, &t->data.shards)) {
        const enum error_code e = reference_renew(ref, t, err);
        if (e) return e;
    }
    compare_all(t, ref, KIND_WEIGHT, weight);
    compare_biases(t, ref, c);
    if (reference_has_masters(&t->plan)) compare_all(t, ref, KIND_MASTER, master);
    for (int s = 0; s < t->plan.optimizer->states; s++) {
        char of[16];
        snprintf(of, sizeof of, "%.10s of ", t->plan.optimizer->state_name[s]);
        state.of = of;
        compare_all(t, ref, KIND_STATE + (enum tensor_kind)s, state);
    }
    return OK;
}
