#include "emulated_devices/verify/compare.h"
#include "ref/ops/threads.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one tensor on one device -------------------------------------------------------------------------------------- */

static bool same_tensor(const struct spread *a, const struct spread *b)
{
    return a->step == b->step && strcmp(a->kind, b->kind) == 0 && strcmp(a->tensor, b->tensor) == 0;
}

/* Devices are visited tensor by tensor: when the next one comes, the last has been seen on all that have it. */
static void enter(struct comparison *c, const char *kind, const struct worst *found)
{
    struct spread now = { .step = found->step };
    snprintf(now.kind, sizeof now.kind, "%s", kind);
    snprintf(now.tensor, sizeof now.tensor, "%s", found->tensor);
    if (same_tensor(&c->current, &now)) return;
    const char *const of = strcmp(c->current.kind, c->current.tensor) == 0 ? "" : c->current.kind;
    if (!c->failed && c->current.kind[0]) snprintf(c->before, sizeof c->before, "%s%s%s", of, of[0] ? " " : "", c->current.tensor);
    c->current = now;
}

/* ---- where the one-device run itself diverges ------------------------------------------------------------------------ */

/* Whether there is nothing to be held to: the truth is not finite, or its twin is not, so that rounding decides whether it is.  Which
 * elements of a sum's result overflow depends on the order of addition, so from here on nothing is compared, but for loss and norm. */
static bool diverges(struct comparison *c, const char *kind, const struct worst *found, double size, double bound)
{
    if (c->diverged) return true;
    if (isfinite(size) && (size == 0 || isfinite(bound))) return false;
    enter(c, kind, found);
    c->diverged = true;
    c->divergence = c->current;
    return true;
}

/* ---- a comparison ---------------------------------------------------------------------------------------------------- */

/* Keep the larger ratio; NaN is larger than anything. */
static void note(struct comparison *c, struct worst *worst, const char *kind, struct worst found)
{
    enter(c, kind, &found);
    c->compared++;
    if (worst != &c->quantised && !(found.error <= c->largest_error)) c->largest_error = found.error;
    if (isnan(found.error)) found.error = NAN;          /* without a sign */
    found.ratio = found.error == 0 ? 0 : found.error / found.bound;
    c->current.on.rounding = found.bound;
    evidence_add(&c->current.on, found.rank, !(found.ratio <= 1), found.scale, found.truth);
    if (!(found.ratio <= 1)) {
        c->wrong++;
        if (!c->failed) snprintf(c->first_kind, sizeof c->first_kind, "%s", kind);
        if (!c->failed || (same_tensor(&c->current, &c->where) && !(found.ratio <= c->first.ratio))) c->first = found;
        if (!c->failed) c->where = c->current, c->excess = worst == &c->quantised;
        c->failed = true;
    }
    if (c->failed && same_tensor(&c->current, &c->where)) c->where = c->current;
    if (!(found.ratio <= worst->ratio) || worst->tensor[0] == 0) *worst = found;
}

/* ---- activations --------------------------------------------------------------------------------------------------- */

struct visit { struct comparison *result; const struct recording *record; const struct model_config *model; int64_t step; bool ignored; };

static void compare_activation(void *context, int tensor, int rank, const struct sums *s)
{
    const struct visit *v = context;
    struct comparison *c = v->result;
    const struct recorded *a = &v->record->all[tensor];
    const bool failed = c->failed;
    const double bound = recorded_bound(v->record, a);
    if (v->ignored || bound == 0) return;
    struct worst found = { .rank = rank, .step = v->step, .bound = bound, .scale = scale_of(s->actual, s->product, s->truth), .truth = s->truth,
                           .error = s->elements != s->expected ? NAN : s->difference == 0 ? 0 : sqrt(s->difference) / a->norm };
    const char *const kind = a->gradient ? "activation gradient" : "activation";
    activation_name(found.tensor, sizeof found.tensor, a->name, a->layer, (int)v->model->L);
    if (diverges(c, kind, &found, a->norm, bound)) return;
    note(c, a->gradient ? &c->activation_gradient : &c->activation, kind, found);
    if (!failed && c->failed) activation_made_by(c->from, sizeof c->from, v->model, a->name, a->layer, a->gradient);
}

/* ---- one parameter --------------------------------------------------------------------------------------------- */

struct held_to {
    struct tensor truth;
    double size, bound;                 /* norm of the whole truth; its relative bound */
};

struct job {
    struct comparison *result;
    struct worst *worst;
    const char *kind, *of;              /* of: "exp_avg of " */
    struct held_to *to;                 /* [replicas] rank 0: what each of those that train apart is held to */
    int64_t step;
    bool ignored;                       /* the truth has no finite numbers: the step is skipped; or nobody knows a bound */
};

struct beside { struct tensor truth, piece; struct sums sums; };

static void add_run(void *context, struct run r)
{
    struct beside *b = context;
    for (int64_t i = 0; i < r.length; i++) {
        const double a = tensor_get(b->piece, r.piece + i), t = tensor_get(b->truth, r.whole + i);
        b->sums.difference += (a - t) * (a - t), b->sums.actual += a * a, b->sums.product += a * t, b->sums.truth += t * t;
    }
}

static void compare_piece(void *context, const struct piece *p)
{
    struct job *j = context;
    const struct held_to *to = &j->to[p->replica];
    if (j->ignored) return;
    struct beside b = { .truth = to->truth, .piece = p->data };
    layout_each_run_within(p->layout, p->kept.first, p->kept.count, add_run, &b);
    struct worst found = { .error = b.sums.difference == 0 ? 0 : sqrt(b.sums.difference) / to->size, .bound = to->bound, .rank = p->rank,
                           .step = j->step, .scale = scale_of(b.sums.actual, b.sums.product, b.sums.truth), .truth = b.sums.truth };
    snprintf(found.tensor, sizeof found.tensor, "%.15s%.79s", j->of, p->spec->name);
    if (!diverges(j->result, j->kind, &found, to->size, to->bound)) note(j->result, j->worst, j->kind, found);
}

static double norm(const struct ops *ops, struct tensor t) { return sqrt(ops->sum_of_squares(t)); }

static struct tensor truth_of(const struct reference *ref, int i, enum tensor_kind kind)
{
    const struct serial_run *run = &ref->truth;
    switch (kind) {
    case KIND_GRADIENT:
    case KIND_EXACT_GRADIENT: return run->model.g[i];
    case KIND_WEIGHT: return run->model.w[i];
    case KIND_MASTER: return run->master[i];
    case KIND_ANCHOR: return run->anchor[i];
    case KIND_MOMENTUM: return run->momentum[i];
    default: return run->state[i * OPTIMIZER_MAX_STATES + kind - KIND_STATE];
    }
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

static enum error_code compare_one(struct trainer *t, struct reference *ref, int i, enum tensor_kind kind, struct job j, struct error *err)
{
    const bool here = t->comm->rank == 0;
    const int replicas = here && !kind_is_common(kind) ? ref->replicas : 1;
    j.to = here ? calloc((size_t)replicas, sizeof *j.to) : NULL;
    if (here && j.to == NULL) comm_give_up(t->comm, (fail(err, ERR_MEMORY, "no memory to compare %d replicas", replicas), err));
    for (int r = 0; r < replicas && here; r++) {
        const struct reference *of = reference_replica(ref, r);
        j.to[r].truth = truth_of(of, i, kind);
        j.to[r].size = norm(of->truth.model.ops, j.to[r].truth);
        j.to[r].bound = bound_of(of, i, kind);
        j.ignored = j.ignored || j.to[r].bound == 0;
    }
    j.step = t->step + (kind == KIND_GRADIENT || kind == KIND_EXACT_GRADIENT);
    const enum error_code e = collect(t, i, kind, compare_piece, &j, err);
    free(j.to);
    return e;
}

/* ---- gradients that were quantised on their way ----------------------------------------------------------------------- */

/* The worst element: by which part of what quantising allows, or by how many times that, it differs from the exact sum. */
static void compare_excess(void *context, const struct piece *p)
{
    struct job *j = context;
    struct worst found = { .bound = 1, .rank = p->rank, .step = j->step };
    for (int64_t i = 0; i < tensor_count(p->data); i++)
        if (!(tensor_get(p->data, i) <= found.error)) found.error = tensor_get(p->data, i);
    snprintf(found.tensor, sizeof found.tensor, "%.79s", p->spec->name);
    if (!j->ignored && !j->result->diverged) note(j->result, j->worst, j->kind, found);
}

/* What devices have computed is compared before any of it is quantised; what that has done to it is held to its proven bound. Then the
 * reference goes on from the devices' gradients. */
static enum error_code compare_quantised(struct trainer *t, struct reference *ref, int i, struct job j, struct error *err)
{
    enum error_code e = compare_one(t, ref, i, KIND_EXACT_GRADIENT, j, err);
    j.worst = &j.result->quantised, j.kind = "quantised gradient", j.step = t->step + 1;
    return e ? e : collect(t, i, KIND_GRADIENT_EXCESS, compare_excess, &j, err);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------ */

/* The other devices sleep until it is done, so that it may have the cores of all. */
static enum error_code gradients_on_all_cores(struct reference *ref, int devices, struct error *err)
{
    use_cores(1);
    const enum error_code e = reference_gradients(ref, err);
    use_cores(devices);
    return e;
}

enum error_code compare_begin(struct probes *p, struct reference *ref, struct error *err)
{
    struct comm *comm = p->trainer->comm;
    enum error_code e = comm->rank == 0 ? gradients_on_all_cores(ref, comm->size, err) : OK;
    e = comm_agree(comm, e, err);
    return e ? e : probes_deliver(p, comm->rank == 0 ? &ref->record : NULL, err);
}

/* One number for the whole model: the same on every device. */
static void compare_number(struct comparison *c, struct worst *worst, const char *name, double actual, double truth, double bound, int64_t step)
{
    struct worst found = { .error = fabs(actual - truth) / fabs(truth), .bound = bound / fabs(truth), .step = step,
                           .scale = scale_of(actual * actual, actual * truth, truth * truth), .truth = truth * truth };
    if (actual == truth) found.error = 0;
    snprintf(found.tensor, sizeof found.tensor, "%s", name);
    const bool failed = c->failed;
    if (diverges(c, name, &found, fabs(truth), bound) && (isfinite(truth) || !isfinite(actual))) return;
    note(c, worst, name, found);
    if (!failed && c->failed) c->number = c->where.on.number = true;
}

/* Without a backward pass: two losses, and the slope. */
static void compare_sides(struct comparison *c, const struct reference *ref, const struct step_result *result, int64_t step)
{
    static const char *const name[2] = { "loss at w + eps z", "loss at w - eps z" };
    for (int side = 0; side < 2; side++)
        compare_number(c, &c->loss, name[side], result->side[side], ref->truth.side[side], reference_side_bound(ref, side), step);
    const bool failed = c->failed;
    compare_number(c, &c->norm, "slope", result->slope, ref->truth.slope, reference_slope_bound(ref), step);
    if (!failed && c->failed) c->where.on.sides = true;
}

/* Steps are counted from 1, so that one step's gradients and weights have one number.  The gradients of weights are finished last
 * layer first. */
enum error_code compare_gradients(struct probes *p, struct reference *ref, const struct step_result *result, struct comparison *c, struct error *err)
{
    struct trainer *t = p->trainer;
    const bool here = t->comm->rank == 0;
    struct visit v = { .result = c, .model = &t->plan.model, .step = t->step + 1 };
    const bool overflow = here && reference_overflows(ref);
    if (c->passing) c->diverged = false;
    c->passing = overflow;
    if (here && t->plan.optimizer->forward_only) compare_sides(c, ref, result, v.step);
    if (t->plan.optimizer->forward_only) return OK;
    if (here) v.record = &ref->record;
    enum error_code e = probes_collect(p, false, compare_activation, &v, err);
    if (here) compare_number(c, &c->loss, "loss", result->loss, reference_loss(ref), reference_loss_bound(ref), v.step);
    v.ignored = overflow;
    if (!e) e = probes_collect(p, true, compare_activation, &v, err);
    data_settle_tracking(&t->data);
    for (int i = model_param_count(&t->plan.model) - 1; i >= 0 && !e; i--) {
        const struct job j = { .result = c, .worst = &c->gradient, .kind = "gradient", .of = "", .ignored = overflow };
        e = t->data.tracks ? compare_quantised(t, ref, i, j, err) : compare_one(t, ref, i, KIND_GRADIENT, j, err);
    }
    if (!e && t->data.tracks) e = reference_take_gradients(ref, t, err);
    if (here && !e && !(overflow && !isfinite(result->norm))) compare_number(c, &c->norm, "norm", result->norm, reference_norm(ref), reference_norm_bound(ref), v.step);
    return e;
}

/* In order of execution: the outer momentum first, then the anchor that it steps, then the replicas' weights, which become it. */
static enum error_code compare_outer(struct trainer *t, struct reference *ref, struct comparison *c, struct error *err)
{
    const int n = t->data.shards.apart ? model_param_count(&t->plan.model) : 0;
    enum error_code e = OK;
    for (int i = 0; i < n && !e && t->data.outer.momentum > 0; i++)
        e = compare_one(t, ref, i, KIND_MOMENTUM, (struct job){ .result = c, .worst = &c->state, .kind = "state", .of = "outer momentum " }, err);
    for (int i = 0; i < n && !e; i++)
        e = compare_one(t, ref, i, KIND_ANCHOR, (struct job){ .result = c, .worst = &c->weight, .kind = "weight", .of = "anchor of " }, err);
    return e;
}

enum error_code compare_weights(struct trainer *t, struct reference *ref, struct comparison *c, struct error *err)
{
    const int n = model_param_count(&t->plan.model);
    enum error_code e = compare_outer(t, ref, c, err);
    if (!e && data_renews_quantised(&t->data.request, &t->data.shards)) e = reference_renew(ref, t, err);
    for (int i = 0; i < n && !e; i++)
        e = compare_one(t, ref, i, KIND_WEIGHT, (struct job){ .result = c, .worst = &c->weight, .kind = "weight", .of = "" }, err);
    for (int i = 0; i < n && !e && reference_has_masters(&t->plan); i++)
        e = compare_one(t, ref, i, KIND_MASTER, (struct job){ .result = c, .worst = &c->weight, .kind = "weight", .of = "master of " }, err);
    for (int s = 0; s < t->plan.optimizer->states; s++) {
        char of[16];
        snprintf(of, sizeof of, "%.10s of ", t->plan.optimizer->state_name[s]);
        for (int i = 0; i < n && !e; i++)
            e = compare_one(t, ref, i, KIND_STATE + (enum tensor_kind)s, (struct job){ .result = c, .worst = &c->state, .kind = "state", .of = of }, err);
    }
    return e;
}

/* ---- for reports ---------------------------------------------------------------------------------------------------------- */

const struct worst *comparison_kind(const struct comparison *c, int i, const char **name)
{
    const struct { const char *name; const struct worst *worst; } kinds[] = {
        { "activations", &c->activation }, { "loss", &c->loss }, { "their gradients", &c->activation_gradient },
        { "gradients", &c->gradient }, { "as quantised", &c->quantised }, { "norm", &c->norm }, { "weights", &c->weight }, { "states", &c->state },
    };
    if (i >= (int)(sizeof kinds / sizeof *kinds)) return NULL;
    *name = kinds[i].name;
    return kinds[i].worst;
}

const char *spread_name(char *out, size_t size, const struct spread *s)
{
    const bool number = strcmp(s->kind, s->tensor) == 0;
    snprintf(out, size, "%s%s%s", number ? "" : s->kind, number ? "" : " ", s->tensor);
    return out;
}

const char *comparison_describe(char *out, size_t size, const struct comparison *c, const struct plan *p)
{
    const struct worst *f = &c->first;
    char place[96], scale[120], device[64], where[200] = "";
    diagnose_place(place, sizeof place, &p->mesh, &c->where.on);
    diagnose_scale(scale, sizeof scale, &p->mesh, p->micros, &c->where.on);
    if (!c->number) snprintf(where, sizeof where, " on device %d (%s)", f->rank, mesh_describe(&p->mesh, f->rank, device, sizeof device));
    const char *differs = c->excess ? "differs from the sum of what was quantised, in units of what that allows," : "differs from the one-device run";
    snprintf(out, size, "step %lld: %s%s%s%s %s by %.3g; its bound is %.3g%s%s%s%s", (long long)f->step, c->number ? "" : c->first_kind,
             c->number ? "" : " ", f->tensor, where, differs, f->error, f->bound, c->number ? "" : "; wrong on ", c->number ? "" : place,
             scale[0] ? "; it is " : "", scale);
    return out;
}
