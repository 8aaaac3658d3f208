/* serial.c -- the one-device side of answers, scores and advantages.  loop.c calls on rank 0.  Errors: ERR_MEMORY,
 * ERR_DIVERGED; what is wrong is kept in verdicts. */
#include "emulated_devices/rl/serial.h"
#include "emulated_devices/rl/batch.h"
#include "emulated_devices/rl/rollout.h"
#include "ref/model/perturb.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool serial_is_exact(const struct serial *serial) { return serial->plan->model.exact != SUMS_ROUND; }

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

/* Copies of all weights.  @return NULL without memory; else for free_weights. */
static struct tensor *copy_weights(const struct transformer *model)
{
    struct tensor *const all = calloc((size_t)model->params, sizeof *all);
    for (int i = 0; all && i < model->params; i++) {
        all[i] = model->w[i];
        all[i].data = malloc(tensor_bytes(all[i]) + 1);
        if (all[i].data) memcpy(all[i].data, model->w[i].data, tensor_bytes(all[i]));
    }
    return all;
}

static void free_weights(struct tensor *all, int count)
{
    for (int i = 0; all && i < count; i++) free(all[i].data);
    free(all);
}

static bool there(const struct tensor *all, int count)
{
    for (int i = 0; all && i < count; i++)
        if (all[i].data == NULL) return false;
    return all != NULL;
}

/* The versions one after another: [versions * params]. */
static bool keep_room(struct serial *serial)
{
    const int params = serial->model.params;
    serial->kept = calloc((size_t)serial->versions * (size_t)params, sizeof *serial->kept);
    bool ok = serial->kept != NULL;
    for (int v = 0; ok && v < serial->versions * params; v++) {
        serial->kept[v] = serial->model.w[v % params];
        ok = (serial->kept[v].data = malloc(tensor_bytes(serial->kept[v]) + 1)) != NULL;
    }
    return ok;
}

enum error_code serial_open(struct serial *serial, const struct plan *plan, const struct samples *samples, int kept,
                            struct error *err)
{
    *serial = (struct serial){ .plan = plan, .versions = kept };
    enum error_code e = transformer_open(&serial->model, &plan->model, plan->dtype, plan->seed, err);
    if (e) return e;
    serial->start = copy_weights(&serial->model), serial->critic = copy_weights(&serial->model);
    const bool ok = keep_room(serial) && there(serial->start, serial->model.params)
        && there(serial->critic, serial->model.params);
    if (!ok) e = fail(err, ERR_MEMORY, "no memory for %d versions of the weights", kept);
    if (!e) e = samples_open(&serial->again, samples->count, samples->group, samples->prompt, samples->most, err);
    if (!e)
        e = judge_open(&serial->judge, &serial->model, samples_length(samples), ~plan->seed, plan->mesh.size[TP], err);
    if (e) serial_close(serial);
    return e;
}

void serial_close(struct serial *serial)
{
    const int params = serial->model.params;
    free_weights(serial->kept, serial->versions * params);
    free_weights(serial->start, params), free_weights(serial->critic, params);
    samples_close(&serial->again), judge_close(&serial->judge);
    if (params) transformer_close(&serial->model);
    *serial = (struct serial){ .plan = NULL };
}

static void take_weights(struct serial *serial, const struct tensor *all)
{
    for (int i = 0; i < serial->model.params; i++)
        memcpy(serial->model.w[i].data, all[i].data, tensor_bytes(all[i]));
}

static struct tensor *version_at(const struct serial *serial, int64_t version)
{
    return serial->kept + version % serial->versions * serial->model.params;
}

void serial_keep(struct serial *serial, const struct transformer *model, int64_t version)
{
    for (int i = 0; i < model->params; i++) {
        memcpy(version_at(serial, version)[i].data, model->w[i].data, tensor_bytes(model->w[i]));
        if (version == 0) memcpy(serial->start[i].data, model->w[i].data, tensor_bytes(model->w[i]));
    }
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void compare_one(struct compared *compared, const char *what, int64_t sample, int64_t place, double own,
                        double truth, double bound)
{
    const double far = fabs(own - truth);
    compared->numbers++;
    if (far <= bound) compared->farthest = fmax(compared->farthest, far);
    compared->bound = fmax(compared->bound, bound);
    if (far <= bound) return;
    if (compared->wrong++ == 0)
        snprintf(compared->first, sizeof compared->first, "%s of sample %lld, token %lld is %.9g, not %.9g, which may "
                 "be off by %.2e", what, (long long)sample, (long long)place, own, truth, bound);
}

/* The row that says token `place` of an answer. */
static int64_t serial_row_of(const struct samples *samples, int64_t place) { return samples->prompt - 1 + place; }

/* One pass over a sample: its rows' numbers. */
static enum error_code score_pass(struct serial *serial, const struct batch_view *view, int64_t sample, double *to,
                                  struct error *err)
{
    const struct samples *const s = view->samples;
    const struct row_loss loss = { .of_logit = view->critic };
    const struct transformer *const m = &serial->model;
    const int64_t S = samples_length(s);
    int32_t ids[2 * TASK_MOST_DIGITS + 2 + TASK_MOST_DIGITS + 2], labels[sizeof ids / sizeof *ids];
    double unused;
    batch_fill(view, sample, 1, ids, labels);
    const enum error_code e = transformer_forward(&serial->model, ids, labels, 1, S, &unused, err);
    const struct row_sums sums = { m->top, m->total, m->hit };
    for (int64_t t = 0; t < s->tokens[sample] && !e; t++)
        to[t] = row_number(&loss, &sums, serial_row_of(s, t));
    return e;
}

/* The numbers of all samples by these weights, and how far twins are. */
static enum error_code score_all(struct serial *serial, const struct tensor *weights, const struct batch_view *view,
                                 double *to, double *bound, struct error *err)
{
    double far[TASK_MOST_DIGITS + 2];
    const int64_t most = view->samples->most;
    enum error_code e = OK;
    *bound = 0;
    take_weights(serial, weights);
    serial->model.observer = (struct observer){ 0 };
    for (int64_t i = 0; i < view->samples->count && !e; i++) e = score_pass(serial, view, i, to + i * most, err);
    for (int twin = 0; twin < JUDGE_TWINS && !e && !serial_is_exact(serial); twin++)
        for (int64_t i = 0; i < view->samples->count && !e; i++) {
            struct perturbation disturb = { .seed = ~serial->plan->seed + (uint64_t)twin,
                                            .parts = serial->plan->mesh.size[TP] };
            serial->model.observer = perturbing_observer(&disturb);
            e = score_pass(serial, view, i, far, err);
            for (int64_t t = 0; t < view->samples->tokens[i] && !e; t++)
                *bound = fmax(*bound, fabs(far[t] - to[i * most + t]));
        }
    serial->model.observer = (struct observer){ 0 };
    return e;
}

static enum error_code compare_scores(struct serial *serial, const struct tensor *weights,
                                      const struct batch_view *view, const double *theirs, double *to,
                                      const char *what, struct compared *compared, struct error *err)
{
    const int64_t most = view->samples->most;
    double bound;
    const enum error_code e = score_all(serial, weights, view, to, &bound, err);
    for (int64_t i = 0; i < view->samples->count * most && !e; i++)
        if (i % most < view->samples->tokens[i / most])
            compare_one(compared, what, view->samples->first + i / most, i % most, theirs[i], to[i], bound);
    return e;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The answer of a sample, with the logits that have chosen its tokens. */
static enum error_code judge_one(struct serial *serial, const struct samples *samples, int64_t sample, uint64_t seed,
                                 const double *logits, struct error *err)
{
    const int64_t V = serial->plan->model.V, tokens = samples->tokens[sample], number = samples->first + sample;
    struct request request = { .prompt = { .count = samples->prompt }, .most = samples->most,
                               .how = rollout_sampling(seed, number) };
    struct tensor own = tensor_2d(malloc((size_t)(tokens * V) * dtype_size(serial->plan->dtype) + 1),
                                  serial->plan->dtype, tokens, V);
    struct verdict verdict;
    char name[40];
    if (own.data == NULL) return fail(err, ERR_MEMORY, "no memory for the logits of an answer");
    for (int64_t i = 0; i < tokens * V; i++) tensor_set(own, i, logits[sample * samples->most * V + i]);
    const enum error_code e = judge_answer(&serial->judge, &request, samples_at(samples, sample),
                                           samples->prompt + tokens, own, &verdict, err);
    snprintf(name, sizeof name, "of sample %lld", (long long)number);
    if (!e) verdict_add(&serial->answers, &verdict, name);
    for (int64_t t = 0; t < tokens && !e; t++) {
        const double bound = serial_is_exact(serial) ? 0 : 2 * verdict.bound + 8 * dtype_unit(serial->plan->dtype);
        struct tensor row = tensor_rows_of(own, t, 1);
        const int64_t at = samples->prompt + t;
        for (int64_t v = 0; v < V; v++) tensor_set(row, v, serial->judge.logits[serial_row_of(samples, t) * V + v]);
        compare_one(&serial->old, "the log-probability", number, t, samples->old[sample * samples->most + t],
                    rollout_logp(serial->plan->model.exact, row, samples_at(samples, sample)[at]), bound);
    }
    free(own.data);
    return e;
}

/* Advantages follow from tokens, values and log-probabilities, which this side takes from the devices: then they have
 * the same bits. */
static void judge_advantages(struct serial *serial, const struct policy_rule *rule, const struct task *task,
                             const struct samples *samples)
{
    struct samples *const again = &serial->again;
    const size_t numbers = (size_t)(samples->count * samples->most);
    struct reward_spread over;
    memcpy(again->token, samples->token, (size_t)(samples->count * samples_length(samples)) * sizeof *again->token);
    memcpy(again->tokens, samples->tokens, (size_t)samples->count * sizeof *again->tokens);
    memcpy(again->old, samples->old, numbers * sizeof *again->old);
    memcpy(again->ref, samples->ref, numbers * sizeof *again->ref);
    memcpy(again->value, samples->value, numbers * sizeof *again->value);
    advantage_alone(rule, task, again, &over);
    for (size_t i = 0; i < numbers; i++)
        if ((int64_t)(i % (size_t)samples->most) < samples->tokens[i / (size_t)samples->most])
            compare_one(&serial->advantage, "the advantage", samples->first + (int64_t)i / samples->most,
                        (int64_t)i % samples->most, samples->advantage[i], again->advantage[i], 0);
}

enum error_code serial_answers(struct serial *serial, const struct samples *samples, int64_t version, uint64_t seed,
                               const double *logits, struct error *err)
{
    enum error_code e = OK;
    take_weights(serial, version_at(serial, version));
    for (int64_t i = 0; i < samples->count && !e; i++) e = judge_one(serial, samples, i, seed, logits, err);
    return e;
}

enum error_code serial_scores(struct serial *serial, const struct policy_rule *rule, const struct task *task,
                              const struct samples *samples, const struct transformer *critic, bool scored,
                              struct error *err)
{
    struct batch_view view = { .samples = samples, .B = samples->count };
    enum error_code e = OK;
    if (scored)
        e = compare_scores(serial, serial->start, &view, samples->ref, serial->again.ref,
                           "the reference's log-probability", &serial->ref, err);
    view.critic = true;
    for (int i = 0; critic && i < critic->params; i++)
        memcpy(serial->critic[i].data, critic->w[i].data, tensor_bytes(critic->w[i]));
    if (!e && critic)
        e = compare_scores(serial, serial->critic, &view, samples->value, serial->again.value, "the value",
                           &serial->value, err);
    if (!e) judge_advantages(serial, rule, task, samples);
    return e;
}

enum error_code serial_verdict(const struct serial *serial, struct error *err)
{
    const struct compared *const all[] = { &serial->old, &serial->ref, &serial->value, &serial->advantage };
    if (serial->answers.wrong > 0)
        return fail(err, ERR_CHECK, "%lld of %lld tokens are not those of one device: %s",
                    (long long)serial->answers.wrong, (long long)serial->answers.tokens, serial->answers.why);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->wrong > 0)
            return fail(err, ERR_CHECK, "%lld of %lld numbers are not those of one device: %s",
                        (long long)all[i]->wrong, (long long)all[i]->numbers, all[i]->first);
    if (serial->answers.right == 0) return fail(err, ERR_CHECK, "no token of an answer could be judged");
    return OK;
}
