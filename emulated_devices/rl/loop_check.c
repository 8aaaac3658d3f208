/* loop_check.c -- training steps of a run, and the one-device run beside them.  loop.c calls.  Errors are those of
 * steps and of the reference. */
#include "emulated_devices/rl/loop_parts.h"
#include "ref/model/params.h"
#include <math.h>
#include <string.h>

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

/* Set the losses of the one-device run's rows; NULL: cross entropy of labels. */
static void train_for(struct trained *trained, const struct row_loss *loss)
{
    if (trained->referenced)
        trained->reference.truth.model.row_loss = trained->reference.twin.model.row_loss = loss;
}

/* The one-device run of a model, and probes of the devices' activations. */
static enum error_code open_reference(struct trained *trained, struct error *err)
{
    struct trainer *const t = &trained->role->trainer;
    enum error_code e = OK;
    if (t->comm->rank == 0) {
        e = reference_open(&trained->reference, &t->plan, batch_source_of(&trained->alone.view), err);
        trained->referenced = e == OK;
        if (!e) train_for(trained, &trained->alone.loss);
    }
    e = comm_agree(t->comm, e, err);
    if (!e) e = comm_agree(t->comm, trainer_track(t, err), err);
    if (e) return e;
    probes_open(&trained->probes, t, false);
    trained->probed = true;
    /* Without rounding the one-device run goes its own way to the end. */
    trained->watch = (struct reference_watch){ &trained->reference, &trained->probes, trained->comparison, NULL,
                                               .follows = t->plan.model.exact == SUMS_ROUND };
    trained->comparison->exact = t->plan.model.exact != SUMS_ROUND;
    return OK;
}

static enum error_code open_trained(struct rl_run *run, struct trained *trained, enum role_kind kind, bool critic,
                                    struct comparison *comparison, struct error *err)
{
    const struct rl_job *const job = run->job;
    trained->role = &run->role[kind], trained->comparison = comparison;
    const int64_t *const step = &trained->role->trainer.step;
    learner_open(&trained->learner, &run->rule, job->kl, critic, job->plan.B, step);
    learner_open(&trained->alone, &run->rule, job->kl, critic, job->plan.B, step);
    return job->check && trained->role->here ? open_reference(trained, err) : OK;
}

static enum error_code open_serial(struct rl_run *run, struct error *err)
{
    struct rl_record *const r = run->record;
    if (!run->job->check || run->whole->rank != 0) return OK;
    const enum error_code e = serial_open(&r->serial, &run->job->plan, &run->samples[0], run->job->staleness + 1, err);
    r->checked = e == OK;
    if (!e) serial_keep(&r->serial, &run->policy.reference.truth.model, 0);
    return e;
}

enum error_code rl_open_learners(struct rl_run *run, struct error *err)
{
    struct rl_record *const r = run->record;
    enum error_code e = open_trained(run, &run->policy, ROLE_TRAIN, false, &r->comparison, err);
    e = comm_agree(run->whole, e, err);
    if (!e && run->has[ROLE_CRITIC]) e = open_trained(run, &run->critic, ROLE_CRITIC, true, &r->critic, err);
    e = comm_agree(run->whole, e, err);
    return e ? e : comm_agree(run->whole, open_serial(run, err), err);
}

static void close_trained(struct trained *trained)
{
    if (trained->probed) probes_close(&trained->probes);
    if (trained->referenced) reference_close(&trained->reference);
}

void rl_close_learners(struct rl_run *run)
{
    close_trained(&run->policy), close_trained(&run->critic);
}

/* ---- a training step --------------------------------------------------------------------------------------------- */

/* Whether a step's samples say anything: rewards that are all the same in their groups do not. */
static bool step_says(const struct trained *trained)
{
    const struct learner *const l = &trained->learner;
    const struct samples *const s = l->samples;
    const int64_t first = (*l->step - l->view.begin) * l->view.B % s->count;
    for (int64_t i = first * s->most; i < (first + l->view.B) * s->most; i++)
        if (s->advantage[i] != 0) return true;
    return l->view.critic;
}

static enum error_code silent_begins(void *context, struct trainer *trainer, struct training_step *step,
                                     struct error *err)
{
    struct trained *const trained = context;
    (void)trainer, (void)step, (void)err;
    trained->unjudged = trained->comparison->unjudged;
    if (!step_says(trained)) ++*trained->silent, trained->unjudged = -1 - trained->unjudged;
    return OK;
}

/* Gradients that are rounding alone cannot be judged, and need not be. */
static enum error_code silent_ends(void *context, struct trainer *trainer, struct training_step *step,
                                   struct error *err)
{
    struct trained *const trained = context;
    (void)trainer, (void)step, (void)err;
    if (trained->unjudged < 0) trained->comparison->unjudged = -1 - trained->unjudged;
    return OK;
}

enum error_code rl_train(struct rl_run *run, struct trained *trained, int64_t steps, struct samples *samples,
                         struct step_result *last, struct error *err)
{
    struct training_observer beside[2] = {
        { .context = NULL },
        { .context = trained, .at = { [STEP_BEGINS] = silent_begins, [STEP_ENDED] = silent_ends } } };
    learner_take(&trained->learner, samples), learner_take(&trained->alone, samples);
    trained->silent = &run->record->silent;
    if (run->job->check) beside[0] = reference_observer(&trained->watch);
    return learner_train(&trained->learner, &trained->role->trainer, steps, beside, run->job->check ? 2 : 0, last, err);
}

enum error_code rl_warm(struct rl_run *run, struct samples *samples, struct error *err)
{
    struct trained *const policy = &run->policy;
    struct training_observer beside = { .context = NULL };
    learner_take(&policy->learner, samples), learner_take(&policy->alone, samples);
    if (run->job->check) beside = reference_observer(&policy->watch);
    train_for(policy, NULL);
    /* The one-device run has the trainer's own plan. */
    double *const lr = &policy->role->trainer.plan.hyper.lr, usual = *lr;
    *lr = run->job->warm_lr;
    const enum error_code e = training_run(&policy->role->trainer, run->job->minibatches, &beside, run->job->check,
                                           NULL, err);
    *lr = usual;
    train_for(policy, &policy->alone.loss);
    return e;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* The logits of answers are with the devices that drew them. */
enum error_code rl_judge_answers(struct rl_run *run, struct samples *samples, struct error *err)
{
    struct serial *const serial = &run->record->serial;
    const int64_t V = run->job->plan.model.V, row = samples->most * V;
    for (int64_t i = 0; i < samples->count; i++)
        for (int64_t v = samples->tokens[i] * V; v < row; v++) run->rollout.logits[i * row + v] = 0;
    enum error_code e = samples_share(run->whole, run->rollout.logits, samples->count * row, "logit", err);
    if (!e && run->whole->rank == 0)
        e = serial_answers(serial, samples, samples->version, run->job->plan.seed, run->rollout.logits, err);
    return comm_agree(run->whole, e, err);
}

enum error_code rl_judge_scores(struct rl_run *run, struct samples *samples, struct error *err)
{
    const bool values = run->job->rule->values;
    enum error_code e = OK;
    if (run->whole->rank == 0)
        e = serial_scores(&run->record->serial, &run->rule, &run->job->task, samples,
                          values ? &run->critic.reference.truth.model : NULL, rl_scores(run->job), err);
    return comm_agree(run->whole, e, err);
}

void rl_keep_version(struct rl_run *run, int64_t version)
{
    if (run->whole->rank == 0) serial_keep(&run->record->serial, &run->policy.reference.truth.model, version);
}

/* Drawing and training with the same weights give a token one log-probability: without rounding to the bit, else each
 * within its bound of one device's. */
static enum error_code check_mismatch(const struct rl_record *record, const struct plan *plan, struct error *err)
{
    const double bound = plan->model.exact != SUMS_ROUND ? 0 : record->checked ? 2 * record->serial.old.bound
        : (double)INFINITY;
    for (int64_t i = 0; i < record->iterations; i++)
        if (record->step[i].mismatch > bound)
            return fail(err, ERR_CHECK, "iteration %lld: a token's log-probability is %.3g apart between drawing and "
                        "training with the same weights; %.3g is explained by rounding", (long long)i + 1,
                        record->step[i].mismatch, bound);
    return OK;
}

enum error_code rl_verdict(const struct rl_record *record, const struct plan *plan, struct error *err)
{
    const struct comparison *const all[] = { &record->comparison, &record->critic };
    char text[400];
    /* Answers and scores come before training. */
    enum error_code e = record->checked ? serial_verdict(&record->serial, err) : OK;
    if (!e) e = check_mismatch(record, plan, err);
    if (!record->checked) return e;
    for (int i = 0; i < 2 && !e; i++) {
        if (all[i]->compared == 0) continue;
        if (all[i]->failed) return fail(err, ERR_CHECK, "%s", comparison_describe(text, sizeof text, all[i], plan));
        if (all[i]->diverged)
            return fail(err, ERR_CHECK, "the one-device run diverges: there is nothing to compare with");
        if (!comparison_holds(all[i]))
            return fail(err, ERR_CHECK, "%s", comparison_unjudged(text, sizeof text, all[i], plan));
    }
    return e || record->comparison.compared > 0 ? e : fail(err, ERR_CHECK, "no tensor of training was compared");
}
