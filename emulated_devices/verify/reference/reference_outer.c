#include "emulated_devices/verify/reference/reference_outer.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct outer outer_of(const struct reference *r) { return data_outer(&r->plan->data); }

/* Of the step that has just been made. */
static double rate_of(const struct reference *r) { return learning_rate(&r->plan->hyper, r->step); }

/* ---- room -------------------------------------------------------------------------------------------------------- */

static bool zeros_like(struct tensor **list, const struct tensor like[], int count)
{
    struct tensor *t = *list = calloc((size_t)count, sizeof *t);
    bool ok = t != NULL;
    for (int i = 0; ok && i < count; i++) {
        t[i] = like[i];
        t[i].data = calloc(1, tensor_bytes(t[i]));
        ok = t[i].data != NULL;
    }
    return ok;
}

static bool open_run(struct serial_run *run)
{
    const int n = run->model.params;
    if (!zeros_like(&run->anchor, run->master, n) || !zeros_like(&run->momentum, run->master, n)) return false;
    for (int i = 0; i < n; i++) memcpy(run->anchor[i].data, run->master[i].data, tensor_bytes(run->master[i]));
    return true;
}

enum error_code outer_open(struct reference *r, struct error *err)
{
    const size_t n = (size_t)r->truth.model.params;
    if (outer_of(r).every == 0) return OK;
    r->theta = calloc((size_t)r->replicas, sizeof *r->theta);
    r->anchor_response = calloc(n, sizeof *r->anchor_response);
    r->momentum_response = calloc(n, sizeof *r->momentum_response);
    const bool ok = r->theta && r->anchor_response && r->momentum_response && open_run(&r->truth) && open_run(&r->twin);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the one-device run's outer step");
}

static void drop(struct tensor *t, int count)
{
    for (int i = 0; t && i < count; i++) free(t[i].data);
    free(t);
}

void outer_close(struct reference *r)
{
    struct serial_run *const run[] = { &r->truth, &r->twin };
    for (int i = 0; i < 2; i++)
        drop(run[i]->anchor, run[i]->model.params), drop(run[i]->momentum, run[i]->model.params);
    free(r->theta), free(r->anchor_response), free(r->momentum_response);
}

void outer_follow(struct reference *r, struct trainer *t)
{
    if (r) r->apart = 0;
    for (int i = 0; i < model_param_count(&t->plan.model) && t->data.shards.apart; i++) {
        reference_follow_one(r, 0, t, i, KIND_ANCHOR);
        if (outer_has_momentum(&t->data.outer)) reference_follow_one(r, 0, t, i, KIND_MOMENTUM);
    }
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static struct serial_run *run_of(struct reference *r, int replica, bool twin)
{
    struct reference *of = reference_replica(r, replica);
    return twin ? &of->twin : &of->truth;
}

/* Once more in each of them: what its passes use. */
static void step_run(struct reference *r, bool twin, int i)
{
    const struct outer o = outer_of(r);
    const struct serial_run *first = run_of(r, 0, twin);
    for (int k = 0; k < r->replicas; k++) r->theta[k] = run_of(r, k, twin)->master[i];
    outer_step(&o, rate_of(r), first->anchor[i], first->momentum[i], r->theta, r->replicas);
    for (int k = 0; k < r->replicas; k++) {
        const struct serial_run *run = run_of(r, k, twin);
        if (run->model.w[i].data != run->master[i].data) tensor_convert(run->model.w[i], run->master[i]);
    }
}

/* How far the anchor and the momentum go by a unit of the gradient, and the anchor by a unit of the new momentum: the
 * rule is linear. */
struct slopes { double momentum, anchor, anchor_by_momentum; };

static struct slopes slopes_of(const struct reference *r)
{
    const struct outer o = outer_of(r);
    struct slopes s = { 0 };
    double kept = 1, moved = 0;
    o.rule->step(&o, rate_of(r), 1, &s.anchor, &s.momentum);
    o.rule->step(&o, rate_of(r), 0, &moved, &kept);
    if (o.rule->momentum && kept != 0) s.anchor_by_momentum = fabs(moved / kept);
    return (struct slopes){ fabs(s.momentum), fabs(s.anchor), s.anchor_by_momentum };
}

/* What the replicas' last steps may be off by goes through the outer step as their mean.  So do the roundings of their
 * weights, which each step may store 2u apart, however small the way that they have gone; and what rounding does to the
 * outer gradients: each is a difference, the sum has `replicas` terms in any order, three products follow. */
static void respond(struct reference *r, int i)
{
    const struct slopes s = slopes_of(r);
    const double u = dtype_unit(r->truth.master[i].dtype);
    double mean = 0;
    for (int k = 0; k < r->replicas; k++) {
        const struct reference *of = reference_replica(r, k);
        const struct tensor theta = of->truth.master[i];
        const double stored = 2 * u * (double)r->apart * norm_of(r, theta),
                     way = tensor_distance(r->truth.anchor[i], theta);
        mean += (of->response[i] + stored + (r->replicas + 4) * u * way) / r->replicas;
    }
    r->momentum_response[i] = s.momentum * mean;
    r->anchor_response[i] = s.anchor * mean;
}

/* Momentum is rounded twice, and then a part of the step. */
static void respond_to_momentum(struct reference *r, int i)
{
    const double rounding = 2 * dtype_unit(r->truth.master[i].dtype) * norm_of(r, r->truth.momentum[i]);
    r->momentum_response[i] += rounding;
    r->anchor_response[i] += slopes_of(r).anchor_by_momentum * rounding;
    for (int k = 0; k < r->replicas; k++) reference_replica(r, k)->response[i] = r->anchor_response[i];
}

void outer_update(struct reference *r)
{
    const struct outer o = outer_of(r);
    r->apart++;
    if (!outer_follows(&o, r->step)) return;
    for (int i = 0; i < r->truth.model.params; i++) {
        respond(r, i);
        step_run(r, true, i);
        step_run(r, false, i);
        respond_to_momentum(r, i);
    }
    r->apart = 0;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

double reference_anchor_bound(const struct reference *r, int i)
{
    const struct tensor a = r->truth.anchor[i];
    const double far = tensor_distance(r->twin.anchor[i], a) + r->anchor_response[i];
    return relative_or_absolute(far, norm_of(r, a), tensor_count(a), a.dtype);
}

double reference_momentum_bound(const struct reference *r, int i)
{
    const struct tensor m = r->truth.momentum[i];
    const double far = tensor_distance(r->twin.momentum[i], m) + r->momentum_response[i];
    return relative_or_absolute(far, norm_of(r, m), tensor_count(m), m.dtype);
}
