/* case.c -- trains a plan beside the reference, and judges what it gives. */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/verify/hash.h"
#include "emulated_devices/verify/reference/replicas.h"
#include "emulated_devices/verify/reference/watch.h"
#include "ref/io/pair.h"
#include "ref/model/sample_mask.h"
#include "ref/numeric/philox.h"
#include "ref/optim/galore.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Go to the next position of a packed sample, or to the first of another one, which may be padding. */
static int32_t next_position(int32_t last, bool begins, bool padding_begins)
{
    const bool padding = begins ? padding_begins : is_padding(last);
    const int32_t position = begins ? 0 : sample_position(last) + 1;
    return padding ? padding_at(position) : position;
}

/* Random tokens; about one label in eight is ignored.  Packed samples have random lengths, and some are padding, but
 * never the first of a sequence. */
static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = (int32_t)(random_uniform((uint64_t)step, 1, at) * (double)p->model.V);
        labels[i] = random_uniform((uint64_t)step, 2, at) < 0.125
                        ? IGNORE_LABEL
                        : (int32_t)(random_uniform((uint64_t)step, 3, at) * (double)p->model.V);
        const bool begins = i % p->S == 0 || random_uniform((uint64_t)step, 4, at) < 0.3;
        if (within == NULL) continue;
        within[i] = next_position(i % p->S ? within[i - 1] : 0, begins,
                                  i % p->S && random_uniform((uint64_t)step, 5, at) < 0.25);
        if (is_padding(within[i])) labels[i] = IGNORE_LABEL;
    }
}

static uint64_t hash_own(const struct trainer *t)
{
    uint64_t h = HASH_START;
    for (int u = 0; u < t->data.units; u++) {
        struct views v = views_of(t->comm->device);
        const struct tensor own = view_read(&v, t->data.unit[u].own_w);
        h = hash_bytes(h, own.data, tensor_bytes(own));
        views_end(&v);
    }
    return h;
}

static enum error_code hash_one(struct trainer *t, int param, int64_t n, enum tensor_kind kind, uint64_t *h,
                                struct error *err)
{
    const enum dtype format = data_format(&t->data, kind);
    struct tensor whole = tensor_1d(calloc((size_t)n, dtype_size(format)), format, n);
    enum error_code e = whole.data ? OK : fail(err, ERR_MEMORY, "no memory to collect %s", trainer_spec(t, param).name);
    e = comm_agree(t->comm, e, err);
    if (!e) collect_whole(t, param, kind, whole);
    if (!e) *h = hash_bytes(*h, whole.data, tensor_bytes(whole));
    free(whole.data);
    return e;
}

/* Hash the whole model's weights and masters, tensor by tensor in the model's order.  Collective; the result is on
 * rank 0. */
static enum error_code hash_whole(struct trainer *t, uint64_t *h, struct error *err)
{
    enum error_code e = OK;
    *h = HASH_START;
    for (int i = 0; i < model_param_count(&t->plan.model) && !e; i++) {
        const struct param_spec s = trainer_spec(t, i);
        const int64_t n = s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
        e = hash_one(t, i, n, KIND_WEIGHT, h, err);
        if (!e && data_has_masters(&t->data)) e = hash_one(t, i, n, KIND_MASTER, h, err);
    }
    return e;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* Without a backward pass the slope, and so weights that were zero before the first step, have each loss's error times
 * 1 / (2 eps).  (Losses themselves are still within 1e-12.) */
static double fp64_error(const struct plan *p)
{
    return optimizer_draws(p->optimizer) ? CASE_FP64_ERROR / p->hyper.distance : CASE_FP64_ERROR;
}

static enum error_code judge_numbers(const struct outcome *o, const struct plan *p, struct error *err)
{
    char text[sizeof err->text];
    const struct comparison *c = &o->comparison;
    if (!o->initial_equal)
        return fail(err, ERR_CHECK, "initial weights differ from the reference's: %s on device %d", c->weight.tensor,
                    c->weight.rank);
    if (c->failed) return fail(err, ERR_CHECK, "%s", comparison_describe(text, sizeof text, c, p));
    if (c->diverged)
        return fail(err, ERR_CHECK,
                    "the one-device run diverges, first in %s at step %lld: there is nothing to compare with",
                    spread_name(text, sizeof text, &c->divergence), (long long)c->divergence.step);
    if (!comparison_holds(c)) return fail(err, ERR_CHECK, "%s", comparison_unjudged(text, sizeof text, c, p));
    if (p->dtype == F64 && optimizer_draws(p->optimizer) && !(c->loss.error <= CASE_FP64_ERROR))
        return fail(err, ERR_CHECK, "error %.3g of %s", c->loss.error, c->loss.tensor);
    const struct pair_text two = pair_text('g', 3, c->largest.error, fp64_error(p));
    if (p->dtype == F64 && !(c->largest.error <= fp64_error(p) || c->largest.bound <= CASE_FP64_BOUND))
        return fail(err, ERR_CHECK, "error %s of %s %s on device %d, step %lld: within its bound of %.3g, but more "
                    "than the %s that fp64 may have", two.first, c->largest_kind, c->largest.tensor,
                    c->largest.rank, (long long)c->largest.step, c->largest.bound, two.second);
    return OK;
}

/* Agree on the checks that each device makes by itself. */
static void judge(struct outcome *o, const struct trainer *t)
{
    enum error_code e = OK;
    const int64_t done = case_steps(&t->plan);
    o->traffic.code = comm_agree(t->comm, traffic_check(t, done, &o->traffic), &o->traffic);
    o->memory.code = comm_agree(t->comm, memory_check(t, done, &o->memory), &o->memory);
    o->adapts.code = comm_agree(t->comm, o->adapts.code, &o->adapts);
    if (t->comm->rank == 0 && o->encoders.code == OK) e = judge_numbers(o, &t->plan, &o->verdict);
    if (t->comm->rank == 0 && o->encoders.code != OK) o->verdict = o->encoders, e = ERR_CHECK;
    o->verdict.code = comm_agree(t->comm, e, &o->verdict);
    if (o->verdict.code == OK)
        o->verdict = o->copies.code != OK ? o->copies : o->traffic.code != OK ? o->traffic
                   : o->adapts.code != OK ? o->adapts : o->memory;
}

/* ---- what is checked in each step -------------------------------------------------------------------------------- */

/* What looks on while a case trains.  What differs is a verdict in the outcome, not an error. */
struct case_watch {
    struct outcome *outcome;
    struct reference *reference;
    struct adaptation adaptation;
};

/* The first copies that differ are kept; later checks are skipped. */
static enum error_code check_copies(struct trainer *t, enum replicas_when when, struct outcome *o, struct error *err)
{
    if (o->copies.code) return OK;
    const enum error_code e = replicas_check(t, when, &o->copies_compared, &o->copies);
    if (!e || e == ERR_CHECK) return OK;
    *err = o->copies;
    return e;
}

/* The first invariant that is broken is kept. */
static enum error_code check_adaptation(struct trainer *t, struct adaptation *a, struct outcome *o, struct error *err)
{
    struct error found;
    const enum error_code e = adaptation_check(a, t, &found);
    if (e == ERR_CHECK && !o->adapts.code) o->adapts = found;
    memcpy(o->adapted, a->of, sizeof o->adapted);
    if (!e || e == ERR_CHECK) return OK;
    *err = found;
    return e;
}

/* Before the reference compares gradients. */
static enum error_code case_reduced(void *context, struct trainer *t, struct training_step *step, struct error *err)
{
    struct case_watch *const watch = context;
    digest_add_gradients(&watch->outcome->digest, t, &step->result);
    const enum error_code e = check_adaptation(t, &watch->adaptation, watch->outcome, err);
    return e ? e : check_copies(t, BEFORE_OPTIMIZER, watch->outcome, err);
}

/* Before the reference compares weights. */
static enum error_code case_stepped(void *context, struct trainer *t, struct training_step *step, struct error *err)
{
    struct case_watch *const watch = context;
    (void)step;
    digest_add_weights(&watch->outcome->digest, t);
    return check_copies(t, AFTER_OPTIMIZER, watch->outcome, err);
}

/* With a code or an overflow apart, devices and reference would step apart: the reference follows the devices. */
static enum error_code case_ended(void *context, struct trainer *t, struct training_step *step, struct error *err)
{
    struct case_watch *const watch = context;
    (void)step, (void)err;
    if (data_quantises(&t->plan.data) || watch->outcome->comparison.codes || t->loss_scale.interval > 0)
        reference_follow(watch->reference, t);
    return OK;
}

static enum error_code steps(struct trainer *t, struct reference *ref, struct outcome *o, struct error *err)
{
    struct probes probes;
    struct step_result last = { 0 };
    struct case_watch watch = { .outcome = o, .reference = ref };
    struct reference_watch beside = { ref, &probes, &o->comparison, &o->encoders, .follows = false };
    const struct training_observer observers[] = {
        { .context = &watch, .at = { [GRADIENTS_REDUCED] = case_reduced, [WEIGHTS_STEPPED] = case_stepped,
                                     [STEP_ENDED] = case_ended } },
        reference_observer(&beside),
    };
    enum error_code e = adaptation_open(&watch.adaptation, t, err);
    if (!e) e = compare_weights(t, ref, &o->comparison, err);
    o->initial_equal = o->comparison.largest.error == 0;
    o->comparison.codes = low_rank_has_codes(&t->plan.hyper);
    o->digest = digest_start();
    digest_add_weights(&o->digest, t);
    probes_open(&probes, t, false);
    if (!e) e = training_run(t, case_steps(&t->plan), observers, 2, &last, err);
    probes_close(&probes);
    adaptation_close(&watch.adaptation);
    o->loss = last.loss;
    o->skipped = t->skipped;
    return e;
}

/* A rule that a device did not keep, such as a missing wait (comm/watch.h), is a verdict, not an error.  All devices
 * know of it, and have stopped at the same place. */
static enum error_code run_steps(struct trainer *t, struct reference *ref, struct outcome *o, struct error *err)
{
    const enum error_code e = comm_agree(t->comm, steps(t, ref, o, err), err);
    if (e == OK) judge(o, t);
    if (e != ERR_CHECK) return e;
    o->verdict = *err;
    return OK;
}

static enum error_code add_bridged(struct trainer *t, struct outcome *o, struct error *err)
{
    uint64_t all[MESH_MOST_DEVICES] = { 0 };
    const uint64_t own = t->comm->counted.of[TRAFFIC_ENCODERS].of[ALLTOALL].bytes_sent;
    const enum error_code e = comm_bring(t->comm, &own, sizeof own, all, err);
    for (int d = 0; d < t->comm->size && t->comm->rank == 0; d++) o->bridged += all[d];
    return e;
}

static enum error_code train(struct trainer *t, const struct batch_source source, struct outcome *o, struct error *err)
{
    struct reference ref;
    enum error_code e = OK;
    if (t->comm->rank == 0) e = reference_open(&ref, &t->plan, source, err);
    const bool opened = t->comm->rank == 0 && !e;
    e = comm_agree(t->comm, e, err);
    if (!e) e = comm_agree(t->comm, data_track(&t->data, err), err);
    if (!e) e = run_steps(t, &ref, o, err);
    o->flops = t->device->clock.flops;
    o->time = t->device->clock.now;
    o->bridge = t->encoders.peak;
    if (!e) e = add_bridged(t, o, err);
    o->hash = hash_own(t);
    o->activations = t->device->arena.peak.tag[ACTIVATIONS];
    for (int tag = PARAMETERS; tag <= OPTIMIZER; tag++) o->model_state += t->device->arena.peak.tag[tag];
    if (!e) e = digest_finish(&o->digest, t, err);
    if (!e) e = hash_whole(t, &o->whole_hash, err);
    if (opened) reference_close(&ref);
    return e;
}

/* The work to do with an open trainer. */
struct work {
    enum error_code (*run)(struct trainer *, struct batch_source, struct work *, struct error *);
    struct outcome *outcome;
    int steps;
    uint64_t *whole_hash;
    struct step_result last;
};

static enum error_code beside_reference(struct trainer *t, struct batch_source source, struct work *w,
                                        struct error *err)
{
    return train(t, source, w->outcome, err);
}

static enum error_code alone(struct trainer *t, struct batch_source source, struct work *w, struct error *err)
{
    (void)source;
    const enum error_code e = training_run(t, w->steps, NULL, 0, &w->last, err);
    return e ? e : hash_whole(t, w->whole_hash, err);
}

static enum error_code with_trainer(const struct plan *plan, struct work *w, struct error *err)
{
    struct device device;
    struct comm comm;
    struct trainer t;
    const struct batch_source source = { fill, plan };
    enum error_code e = device_open(&device, NULL, plan->dtype, 0, err);
    if (e) return e;
    if (plan->cluster) clock_open(&device.clock, plan->cluster, plan->dtype);
    e = comm_open(&comm, &device, err);
    if (!e) {
        e = trainer_open(&t, plan, &comm, source, err);
        if (!e) {
            e = w->run(&t, source, w, err);
            trainer_close(&t);
        }
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code case_run(const struct plan *plan, struct outcome *o, struct error *err)
{
    struct work w = { .run = beside_reference, .outcome = o };
    *o = (struct outcome){ 0 };
    return with_trainer(plan, &w, err);
}

enum error_code case_train(const struct plan *plan, int steps, uint64_t *whole_hash, struct step_result *last,
                           struct error *err)
{
    struct work w = { .run = alone, .steps = steps, .whole_hash = whole_hash };
    const enum error_code e = with_trainer(plan, &w, err);
    if (last) *last = w.last;
    return e;
}
