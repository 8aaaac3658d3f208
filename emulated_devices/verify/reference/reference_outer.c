/* reference_outer.c -- the outer step of replicas that train apart, in truth and twin, and the bounds of its
 * results.  The caller is reference.c, after each step of all replicas.  Only outer_open can fail, with ERR_MEMORY. */
#include "emulated_devices/verify/reference/reference_outer.h"
#include "ref/model/params.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct outer outer_of(const struct reference *reference) { return data_outer(&reference->plan->data); }

/* The learning rate is that of the step that has just been made. */
static double rate_of(const struct reference *reference)
{
    return learning_rate(&reference->plan->hyper, reference->step);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* Make a list of tensors of zeros with these shapes and formats.  @return whether there was memory.  In both cases
 * outer_close frees the list. */
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

/* Make one run's anchor and momentum: the anchor starts at the initial masters, the momentum at 0. */
static bool open_run(struct serial_run *run)
{
    const int n = run->model.params;
    if (!zeros_like(&run->anchor, run->master, n) || !zeros_like(&run->momentum, run->master, n)) return false;
    for (int i = 0; i < n; i++) memcpy(run->anchor[i].data, run->master[i].data, tensor_bytes(run->master[i]));
    return true;
}

enum error_code outer_open(struct reference *reference, struct error *err)
{
    const size_t n = (size_t)reference->truth.model.params;
    if (outer_of(reference).every == 0) return OK;
    reference->theta = calloc((size_t)reference->replicas, sizeof *reference->theta);
    reference->anchor_response = calloc(n, sizeof *reference->anchor_response);
    reference->momentum_response = calloc(n, sizeof *reference->momentum_response);
    const bool ok = reference->theta && reference->anchor_response && reference->momentum_response
        && open_run(&reference->truth) && open_run(&reference->twin);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the one-device run's outer step");
}

static void reference_outer_drop(struct tensor *tensor, int count)
{
    for (int i = 0; tensor && i < count; i++) free(tensor[i].data);
    free(tensor);
}

void outer_close(struct reference *reference)
{
    struct serial_run *const run[] = { &reference->truth, &reference->twin };
    for (int i = 0; i < 2; i++)
        reference_outer_drop(run[i]->anchor, run[i]->model.params),
            reference_outer_drop(run[i]->momentum, run[i]->model.params);
    free(reference->theta), free(reference->anchor_response), free(reference->momentum_response);
}

void outer_follow(struct reference *reference, struct trainer *trainer)
{
    if (reference) reference->apart = 0;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && trainer->data.shards.apart; i++) {
        reference_follow_one(reference, 0, trainer, i, KIND_ANCHOR);
        if (outer_has_momentum(&trainer->data.outer)) reference_follow_one(reference, 0, trainer, i, KIND_MOMENTUM);
    }
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static struct serial_run *run_of(struct reference *reference, int replica, bool twin)
{
    struct reference *of = reference_replica(reference, replica);
    return twin ? &of->twin : &of->truth;
}

/* Take the outer step of parameter i in all replicas of truth or twin: anchor, momentum and every replica's master.
 * Then each replica's weights are set to its master, as its passes use the weights. */
static void step_run(struct reference *reference, bool twin, int i)
{
    const struct outer o = outer_of(reference);
    const struct serial_run *first = run_of(reference, 0, twin);
    for (int k = 0; k < reference->replicas; k++) reference->theta[k] = run_of(reference, k, twin)->master[i];
    outer_step(&o, rate_of(reference), first->anchor[i], first->momentum[i], reference->theta, reference->replicas);
    for (int k = 0; k < reference->replicas; k++) {
        const struct serial_run *run = run_of(reference, k, twin);
        if (run->model.w[i].data != run->master[i].data) tensor_convert(run->model.w[i], run->master[i]);
    }
}

/* How far the anchor and the momentum go by a unit of the gradient, and the anchor by a unit of the new momentum: the
 * rule is linear. */
struct slopes { double momentum, anchor, anchor_by_momentum; };

/* Try the rule on numbers instead of tensors: first a gradient of 1, then a momentum of 1 alone. */
static struct slopes slopes_of(const struct reference *reference)
{
    const struct outer o = outer_of(reference);
    struct slopes s = { 0 };
    double kept = 1, moved = 0;
    o.rule->step(&o, rate_of(reference), 1, &s.anchor, &s.momentum);
    o.rule->step(&o, rate_of(reference), 0, &moved, &kept);
    if (o.rule->momentum && kept != 0) s.anchor_by_momentum = fabs(moved / kept);
    return (struct slopes){ fabs(s.momentum), fabs(s.anchor), s.anchor_by_momentum };
}

/* The mean of the errors of the replicas' last steps goes through the outer step.  So do the roundings of their
 * weights, which each step may store 2u apart, however small their way is; and what rounding does to the outer
 * gradients: each is a difference, the sum has `replicas` terms in any order, three products follow. */
static void respond(struct reference *reference, int i)
{
    const struct slopes s = slopes_of(reference);
    const double u = dtype_unit(reference->truth.master[i].dtype);
    double mean = 0;
    for (int k = 0; k < reference->replicas; k++) {
        const struct reference *of = reference_replica(reference, k);
        const struct tensor theta = of->truth.master[i];
        const double stored = 2 * u * (double)reference->apart * norm_of(reference, theta),
                     way = tensor_distance(reference->truth.anchor[i], theta);
        mean += (of->response[i] + stored + (reference->replicas + 4) * u * way) / reference->replicas;
    }
    reference->momentum_response[i] = s.momentum * mean;
    reference->anchor_response[i] = s.anchor * mean;
}

/* Momentum is rounded twice, and then a part of the step. */
static void respond_to_momentum(struct reference *reference, int i)
{
    const double rounding = 2 * dtype_unit(reference->truth.master[i].dtype) * norm_of(reference,
                                                                                       reference->truth.momentum[i]);
    reference->momentum_response[i] += rounding;
    reference->anchor_response[i] += slopes_of(reference).anchor_by_momentum * rounding;
    for (int k = 0; k < reference->replicas; k++)
        reference_replica(reference, k)->response[i] = reference->anchor_response[i];
}

void outer_update(struct reference *reference)
{
    const struct outer o = outer_of(reference);
    reference->apart++;
    if (!outer_follows(&o, reference->step)) return;
    for (int i = 0; i < reference->truth.model.params; i++) {
        /* The response is computed first, from the replicas' own last steps; the twin steps before the truth. */
        respond(reference, i);
        step_run(reference, true, i);
        step_run(reference, false, i);
        respond_to_momentum(reference, i);
    }
    reference->apart = 0;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

double reference_anchor_bound(const struct reference *reference, int i)
{
    const struct tensor a = reference->truth.anchor[i];
    /* far = |twin - truth| + |response|; the bound is relative to |truth|. */
    const double far = tensor_distance(reference->twin.anchor[i], a) + reference->anchor_response[i];
    return relative_or_absolute(far, norm_of(reference, a), tensor_count(a), a.dtype);
}

double reference_momentum_bound(const struct reference *reference, int i)
{
    const struct tensor m = reference->truth.momentum[i];
    const double far = tensor_distance(reference->twin.momentum[i], m) + reference->momentum_response[i];
    return relative_or_absolute(far, norm_of(reference, m), tensor_count(m), m.dtype);
}
