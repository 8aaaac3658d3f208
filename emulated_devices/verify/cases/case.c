/* case.c -- trains a plan beside the reference, and judges what it gives.
 *
 * verify/jobs and most tests of devices call case_run.  A wrong number is a verdict in the outcome; an error_code
 * means that nothing was judged.  The verdict's code is ERR_CHECK; other codes are ERR_MEMORY and those of a run.
 */
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/verify/hash.h"
#include "emulated_devices/verify/reference/replicas.h"
#include "emulated_devices/verify/reference/watch.h"
#include "ref/io/pair.h"
#include "ref/model/params.h"
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
static void case_fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                      int32_t *within)
{
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        /* Numbers depend on step and position in the batch alone, so all devices and the reference draw one batch. */
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

/* Hash the weights that this device keeps, unit by unit. */
static uint64_t hash_own(struct trainer *trainer)
{
    uint64_t h = HASH_START;
    const struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        for (int u = 0; u < part->data.units; u++) {
            struct views v = views_of(trainer->comm->device);
            const struct tensor own = view_read(&v, part->data.unit[u].own_w);
            h = hash_bytes(h, own.data, tensor_bytes(own));
            views_end(&v);
        }
    return h;
}

/* Collect one tensor of the whole model and add it to the hash on rank 0. The call is collective. */
static enum error_code hash_one(struct trainer *trainer, int param, int64_t n, enum tensor_kind kind, uint64_t *h,
                                struct error *err)
{
    const enum dtype format = data_format(&trainer->data, kind);
    struct tensor whole = tensor_1d(calloc((size_t)n, dtype_size(format)), format, n);
    enum error_code e = whole.data ? OK
        : fail(err, ERR_MEMORY, "no memory to collect %s", trainer_spec(trainer, param).name);
    e = comm_agree(trainer->comm, e, err);
    if (!e) collect_whole(trainer, param, kind, whole);
    if (!e) *h = hash_bytes(*h, whole.data, tensor_bytes(whole));
    free(whole.data);
    return e;
}

/* Hash the whole model's weights and masters, tensor by tensor in the model's order.  Collective; the result is on
 * rank 0. */
static enum error_code hash_whole(struct trainer *trainer, uint64_t *h, struct error *err)
{
    enum error_code e = OK;
    *h = HASH_START;
    for (int i = 0; i < model_param_count(&trainer->plan.model) && !e; i++) {
        const struct param_spec s = trainer_spec(trainer, i);
        const int64_t n = s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
        e = hash_one(trainer, i, n, KIND_WEIGHT, h, err);
        if (!e && data_has_masters(&trainer->data)) e = hash_one(trainer, i, n, KIND_MASTER, h, err);
    }
    return e;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* Without a backward pass the slope, and so weights that were zero before the first step, have each loss's error times
 * 1 / (2 eps).  (Losses themselves are still within 1e-12.) */
static double fp64_error(const struct plan *plan)
{
    return optimizer_draws(plan->optimizer) ? CASE_FP64_ERROR / plan->hyper.distance : CASE_FP64_ERROR;
}

/* On rank 0: judge initial weights, then the comparison, then the stricter limit of fp64. The first thing wrong is
 * the verdict. */
static enum error_code judge_numbers(const struct outcome *outcome, const struct plan *plan, struct error *err)
{
    char text[sizeof err->text];
    const struct comparison *c = &outcome->comparison;
    if (!outcome->initial_equal)
        return fail(err, ERR_CHECK, "initial weights differ from the reference's: %s on device %d", c->weight.tensor,
                    c->weight.rank);
    if (c->failed) return fail(err, ERR_CHECK, "%s", comparison_describe(text, sizeof text, c, plan));
    if (c->diverged)
        return fail(err, ERR_CHECK,
                    "the one-device run diverges, first in %s at step %lld: there is nothing to compare with",
                    spread_name(text, sizeof text, &c->divergence), (long long)c->divergence.step);
    if (!comparison_holds(c)) return fail(err, ERR_CHECK, "%s", comparison_unjudged(text, sizeof text, c, plan));
    /* A loss without a backward pass is held to the plain limit, although its slope has a wider one. */
    if (plan->dtype == F64 && optimizer_draws(plan->optimizer) && !(c->loss.error <= CASE_FP64_ERROR))
        return fail(err, ERR_CHECK, "error %.3g of %s", c->loss.error, c->loss.tensor);
    const struct pair_text two = pair_text('g', 3, c->largest.error, fp64_error(plan));
    if (plan->dtype == F64 && !(c->largest.error <= fp64_error(plan) || c->largest.bound <= CASE_FP64_BOUND))
        return fail(err, ERR_CHECK, "error %s of %s %s on device %d, step %lld: within its bound of %.3g, but more "
                    "than the %s that fp64 may have", two.first, c->largest_kind, c->largest.tensor,
                    c->largest.rank, (long long)c->largest.step, c->largest.bound, two.second);
    return OK;
}

/* Agree on the checks that each device makes by itself. */
static void case_judge(struct outcome *outcome, const struct trainer *trainer)
{
    enum error_code e = OK;
    const int64_t done = case_steps(&trainer->plan);
    outcome->traffic.code = comm_agree(trainer->comm, traffic_check(trainer, done, &outcome->traffic),
                                       &outcome->traffic);
    outcome->memory.code = comm_agree(trainer->comm, memory_check(trainer, done, &outcome->memory), &outcome->memory);
    outcome->adapts.code = comm_agree(trainer->comm, outcome->adapts.code, &outcome->adapts);
    if (trainer->comm->rank == 0 && outcome->encoders.code == OK)
        e = judge_numbers(outcome, &trainer->plan, &outcome->verdict);
    if (trainer->comm->rank == 0 && outcome->encoders.code != OK) outcome->verdict = outcome->encoders, e = ERR_CHECK;
    /* Numbers come first in the verdict, then copies, traffic, invariants and memory. */
    outcome->verdict.code = comm_agree(trainer->comm, e, &outcome->verdict);
    if (outcome->verdict.code == OK)
        outcome->verdict = outcome->copies.code != OK ? outcome->copies : outcome->traffic.code != OK ? outcome->traffic
                   : outcome->adapts.code != OK ? outcome->adapts : outcome->memory;
}

/* ---- what is checked in each step -------------------------------------------------------------------------------- */

/* A case has this while it trains.  A difference is a verdict in the outcome, not an error. */
struct case_watch {
    struct outcome *outcome;
    struct reference *reference;
    struct adaptation adaptation;
};

/* The first copies that differ are kept; later checks are skipped. */
static enum error_code check_copies(struct trainer *trainer, enum replicas_when when, struct outcome *outcome,
                                    struct error *err)
{
    if (outcome->copies.code) return OK;
    const enum error_code e = replicas_check(trainer, when, &outcome->copies_compared, &outcome->copies);
    if (!e || e == ERR_CHECK) return OK;
    *err = outcome->copies;
    return e;
}

/* The first invariant that is broken is kept. */
static enum error_code check_adaptation(struct trainer *trainer, struct adaptation *adaptation, struct outcome *outcome,
                                        struct error *err)
{
    struct error found;
    const enum error_code e = adaptation_check(adaptation, trainer, &found);
    if (e == ERR_CHECK && !outcome->adapts.code) outcome->adapts = found;
    memcpy(outcome->adapted, adaptation->of, sizeof outcome->adapted);
    if (!e || e == ERR_CHECK) return OK;
    *err = found;
    return e;
}

/* The trainer calls this when gradients are reduced, before the reference compares them. */
static enum error_code case_reduced(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    struct case_watch *const watch = context;
    digest_add_gradients(&watch->outcome->digest, trainer, &step->result);
    const enum error_code e = check_adaptation(trainer, &watch->adaptation, watch->outcome, err);
    return e ? e : check_copies(trainer, BEFORE_OPTIMIZER, watch->outcome, err);
}

/* The trainer calls this when weights are stepped, before the reference compares them. */
static enum error_code case_stepped(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    struct case_watch *const watch = context;
    (void)step;
    digest_add_weights(&watch->outcome->digest, trainer);
    return check_copies(trainer, AFTER_OPTIMIZER, watch->outcome, err);
}

/* If a code or an overflow differs, devices and reference step apart, so the reference follows the devices. */
static enum error_code case_ended(void *context, struct trainer *trainer, struct training_step *step, struct error *err)
{
    struct case_watch *const watch = context;
    (void)step, (void)err;
    if (data_quantises(&trainer->plan.data) || watch->outcome->comparison.codes || trainer->loss_scale.interval > 0)
        reference_follow(watch->reference, trainer);
    return OK;
}

/* Train the steps of a case beside the reference: compare initial weights, then watch each step.  The order of the
 * observers is the order in which each moment calls them. */
static enum error_code steps(struct trainer *trainer, struct reference *ref, struct outcome *outcome, struct error *err)
{
    struct probes probes;
    struct step_result last = { 0 };
    struct case_watch watch = { .outcome = outcome, .reference = ref };
    struct reference_watch beside = { ref, &probes, &outcome->comparison, &outcome->encoders, .follows = false };
    const struct training_observer observers[] = {
        { .context = &watch, .at = { [GRADIENTS_REDUCED] = case_reduced, [WEIGHTS_STEPPED] = case_stepped,
                                     [STEP_ENDED] = case_ended } },
        reference_observer(&beside),
    };
    enum error_code e = adaptation_open(&watch.adaptation, trainer, err);
    if (!e) e = compare_weights(trainer, ref, &outcome->comparison, err);
    outcome->initial_equal = outcome->comparison.largest.error == 0;
    /* Initial weights have no codes; from now on states are compared as codes. */
    outcome->comparison.codes = low_rank_has_codes(&trainer->plan.hyper);
    outcome->digest = digest_start();
    digest_add_weights(&outcome->digest, trainer);
    probes_open(&probes, trainer, false);
    if (!e) e = training_run(trainer, case_steps(&trainer->plan), observers, 2, &last, err);
    probes_close(&probes);
    adaptation_close(&watch.adaptation);
    outcome->loss = last.loss;
    outcome->skipped = trainer->skipped;
    return e;
}

/* A rule that a device did not keep, such as a missing wait (comm/watch.h), is a verdict, not an error.  All devices
 * know of it, and have stopped at the same place. */
static enum error_code run_steps(struct trainer *trainer, struct reference *ref, struct outcome *outcome,
                                 struct error *err)
{
    const enum error_code e = comm_agree(trainer->comm, steps(trainer, ref, outcome, err), err);
    if (e == OK) case_judge(outcome, trainer);
    if (e != ERR_CHECK) return e;
    outcome->verdict = *err;
    return OK;
}

/* Add up on rank 0 what all devices have sent of embeddings of images or sound. */
static enum error_code add_bridged(struct trainer *trainer, struct outcome *outcome, struct error *err)
{
    uint64_t all[MESH_MOST_LISTED] = { 0 };
    const uint64_t own = trainer->comm->counted.of[TRAFFIC_ENCODERS].of[ALLTOALL].bytes_sent;
    const enum error_code e = comm_bring(trainer->comm, &own, sizeof own, all, err);
    for (int d = 0; d < trainer->comm->size && trainer->comm->rank == 0; d++) outcome->bridged += all[d];
    return e;
}

/* Open the reference on rank 0, run the steps, and note what the outcome tells beside its verdict.  The call is
 * collective; errors are agreed on before each collective part. */
static enum error_code train(struct trainer *trainer, const struct batch_source source, struct outcome *outcome,
                             struct error *err)
{
    struct reference ref;
    enum error_code e = OK;
    if (trainer->comm->rank == 0) e = reference_open(&ref, &trainer->plan, source, err);
    const bool opened = trainer->comm->rank == 0 && !e;
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_agree(trainer->comm, trainer_track(trainer, err), err);
    if (!e) e = run_steps(trainer, &ref, outcome, err);
    outcome->flops = trainer->device->clock.flops;
    outcome->time = trainer->device->clock.now;
    outcome->bridge = trainer->encoders.peak;
    if (!e) e = add_bridged(trainer, outcome, err);
    outcome->hash = hash_own(trainer);
    outcome->activations = trainer->device->arena.peak.tag[ACTIVATIONS];
    for (int tag = PARAMETERS; tag <= OPTIMIZER; tag++) outcome->model_state += trainer->device->arena.peak.tag[tag];
    if (!e) e = digest_finish(&outcome->digest, trainer, err);
    if (!e) e = hash_whole(trainer, &outcome->whole_hash, err);
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

static enum error_code beside_reference(struct trainer *trainer, struct batch_source source, struct work *work,
                                        struct error *err)
{
    return train(trainer, source, work->outcome, err);
}

static enum error_code alone(struct trainer *trainer, struct batch_source source, struct work *work, struct error *err)
{
    (void)source;
    const enum error_code e = training_run(trainer, work->steps, NULL, 0, &work->last, err);
    return e ? e : hash_whole(trainer, work->whole_hash, err);
}

/* Open device, comm and trainer, do the work, and close them in reverse order, also after an error. */
static enum error_code with_trainer(const struct plan *plan, struct work *work, struct error *err)
{
    struct device device;
    struct comm comm;
    struct trainer t;
    const struct batch_source source = { case_fill, plan };
    enum error_code e = device_open(&device, NULL, plan->dtype, 0, err);
    if (e) return e;
    if (plan->cluster) clock_open(&device.clock, plan->cluster, plan->dtype);
    e = comm_open(&comm, &device, err);
    if (!e) {
        e = trainer_open(&t, plan, &comm, source, err);
        if (!e) {
            e = work->run(&t, source, work, err);
            trainer_close(&t);
        }
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code case_run(const struct plan *plan, struct outcome *outcome, struct error *err)
{
    struct work w = { .run = beside_reference, .outcome = outcome };
    *outcome = (struct outcome){ 0 };
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
