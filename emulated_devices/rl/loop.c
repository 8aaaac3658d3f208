/* loop.c -- the loop over iterations: draw ahead, score, reward, train, move the weights.  cli/train/rl.c calls.
 * Errors are agreed on by all devices; a failure inside a training step or a rollout ends the job. */
#include "emulated_devices/rl/loop_parts.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdlib.h>

/* Prompts of the right answers that are learned first are numbered from here: no iteration asks them by number. */
#define WARM_PROMPTS ((int64_t)1 << 40)

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static int64_t samples_of(const struct rl_job *job) { return job->plan.B * job->minibatches; }

/* The samples of an iteration, whose prompts come from the task. */
static enum error_code ask(struct rl_run *run, int64_t iteration, struct error *err)
{
    struct samples *const s = rl_samples(run, iteration);
    const int64_t prompts = s->count / s->group;
    int64_t first;
    enum error_code e = queue_add(&run->record->queue, s->count, &first, err);
    s->first = first, s->version = rl_version(run->job, iteration);
    for (int64_t i = 0; i < s->count && !e; i++) {
        task_prompt(&run->job->task, iteration * prompts + i / s->group, samples_at(s, i));
        e = queue_put(&run->record->queue, first + i, COLUMN_PROMPT, err);
    }
    return e;
}

/* All samples of an iteration have this column now. */
static enum error_code loop_put(struct rl_run *run, const struct samples *samples, enum queue_column column,
                                struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0; i < samples->count && !e; i++)
        e = queue_put(&run->record->queue, samples->first + i, column, err);
    return e;
}

/* A task takes an iteration's samples from the queue: all of them are ready, and nobody has had them. */
static enum error_code take(struct rl_run *run, const struct samples *samples, enum queue_task task, struct error *err)
{
    const int64_t n = queue_take(&run->record->queue, task, INT64_MAX, samples->count, run->row);
    if (n == samples->count && run->row[0] == samples->first && run->row[n - 1] == samples->first + n - 1) return OK;
    return fail(err, ERR_INTERNAL, "the task %s got %lld samples from the queue, not samples %lld to %lld",
                queue_task_names[task], (long long)n, (long long)samples->first,
                (long long)(samples->first + samples->count - 1));
}

/* ---- virtual time ------------------------------------------------------------------------------------------------ */

/* How long the slowest device of all has worked since `before`. */
static enum error_code slowest(struct rl_run *run, picoseconds before, picoseconds *most, struct error *err)
{
    const picoseconds own = run->whole->device->clock.now - before;
    const enum error_code e = comm_bring(run->whole, &own, sizeof own, run->times, err);
    *most = 0;
    for (int r = 0; r < run->whole->size && !e && run->whole->rank == 0; r++)
        if (run->times[r] > *most) *most = run->times[r];
    return e;
}

static picoseconds now_of(const struct rl_run *run) { return run->whole->device->clock.now; }

/* ---- an iteration ------------------------------------------------------------------------------------------------ */

/* Answers with the weights that the devices of the rollout have. */
static enum error_code loop_draw(struct rl_run *run, int64_t iteration, struct error *err)
{
    struct samples *const s = rl_samples(run, iteration);
    struct rl_record *const record = run->record;
    const picoseconds before = now_of(run);
    enum error_code e = ask(run, iteration, err);
    if (!e) e = take(run, s, TASK_ROLLOUT, err);
    e = comm_agree(run->whole, e, err);
    if (!e) e = rollout_run(&run->rollout, run->whole, s, err);
    if (!e) e = slowest(run, before, &record->step[iteration].draw, err);
    for (int64_t i = 0; i < s->count && !e; i++)
        record->ends[iteration * s->count + i] = 1e-12 * (double)(run->rollout.end[i] - before);
    if (!e) e = loop_put(run, s, COLUMN_ANSWER, err);
    if (!e) e = loop_put(run, s, COLUMN_OLD, err);
    e = comm_agree(run->whole, e, err);
    if (!e && run->job->check) e = rl_judge_answers(run, s, err);
    return e;
}

/* Scores of a role's trainer come to all devices. */
static enum error_code score(struct rl_run *run, struct role *role, struct samples *samples, double *to, bool values,
                             struct error *err)
{
    for (int64_t i = 0; i < samples->count * samples->most; i++)
        to[i] = i % samples->most < samples->tokens[i / samples->most] ? (double)NAN : 0;
    enum error_code e = role->here ? scorer_run(&run->scorer, &role->trainer, samples, to, values, err) : OK;
    e = comm_agree(run->whole, e, err);
    return e ? e : samples_share(run->whole, to, samples->count * samples->most, values ? "value" : "log-probability",
                                 err);
}

/* Make the columns that the training step needs. */
static enum error_code prepare(struct rl_run *run, struct samples *samples, struct rl_step *step, struct error *err)
{
    struct role *const train = &run->role[ROLE_TRAIN];
    enum error_code e = OK;
    if (rl_scores(run->job)) {
        e = take(run, samples, TASK_REFERENCE, err);
        if (!e) e = score(run, &run->role[ROLE_REFERENCE], samples, samples->ref, false, err);
        if (!e) e = loop_put(run, samples, COLUMN_REFERENCE, err);
    }
    if (!e && run->job->rule->values) {
        e = take(run, samples, TASK_VALUE, err);
        if (!e)
            e = weights_move(run->whole, &run->role[ROLE_CRITIC], &run->role[ROLE_VALUES], &run->values_moved, err);
        if (!e) e = score(run, &run->role[ROLE_VALUES], samples, samples->value, true, err);
        if (!e) e = loop_put(run, samples, COLUMN_VALUE, err);
    }
    if (!e) e = take(run, samples, TASK_REWARD, err);
    for (int64_t i = 0; i < samples->count; i++) samples->reward[i] = NAN;
    if (!e && train->here) advantage_rewards(&train->trainer, &run->job->task, samples);
    e = comm_agree(run->whole, e, err);
    if (!e) e = samples_share(run->whole, samples->reward, samples->count, "reward", err);
    if (!e) e = loop_put(run, samples, COLUMN_REWARD, err);
    if (!e) e = take(run, samples, TASK_ADVANTAGE, err);
    if (!e && train->here) e = advantage_of_devices(&train->trainer, &run->rule, samples, &step->spread, err);
    if (!e) e = loop_put(run, samples, COLUMN_ADVANTAGE, err);
    e = comm_agree(run->whole, e, err);
    return !e && run->job->check ? rl_judge_scores(run, samples, err) : e;
}

/* Train on the devices that do. */
static enum error_code train(struct rl_run *run, struct samples *samples, struct rl_step *step, struct error *err)
{
    const int64_t steps = (int64_t)run->job->minibatches * run->job->epochs;
    struct role *const policy = &run->role[ROLE_TRAIN], *const critic = &run->role[ROLE_CRITIC];
    struct step_result last = { 0 };
    enum error_code e = take(run, samples, TASK_TRAIN, err);
    for (int64_t i = 0; i < samples->count * samples->most; i++)
        samples->now[i] = i % samples->most < samples->tokens[i / samples->most] ? (double)NAN : 0;
    e = comm_agree(run->whole, e, err);
    if (!e && policy->here) e = rl_train(run, &run->policy, steps, samples, &last, err);
    step->loss = last.loss, step->norm = last.norm;
    if (!e && policy->here && run->job->rule->values) e = rl_train(run, &run->critic, steps, samples, &last, err);
    if (run->job->rule->values) step->value_loss = last.loss;
    (void)critic;
    e = comm_agree(run->whole, e, err);
    if (!e) e = samples_share(run->whole, samples->now, samples->count * samples->most, "log-probability", err);
    return e;
}

static void describe(const struct rl_run *run, int64_t iteration, const struct samples *samples, struct rl_step *step)
{
    const int64_t tokens = samples_tokens(samples);
    int64_t measured = 0;
    double sum = 0, most = 0;
    step->version = samples->version, step->tokens = (double)tokens / (double)samples->count;
    for (int64_t i = 0; i < samples->count; i++) {
        step->reward += samples->reward[i] / (double)samples->count;
        step->right += (samples->reward[i] == 1) / (double)samples->count;
        for (int64_t at = i * samples->most; at < i * samples->most + samples->tokens[i]; at++) {
            const struct policy_token token = { samples->old[at], samples->ref[at], samples->advantage[at] };
            const double off = fabs(samples->now[at] - samples->old[at]);
            bool out;
            policy_loss(&run->rule, &token, 0, samples->now[at], NULL, &out);
            step->clipped += (double)out / (double)tokens;
            if (rl_scores(run->job))
                step->kl += policy_distance(DISTANCE_K3, samples->ref[at], samples->now[at], NULL) / (double)tokens;
            if (i >= run->job->plan.B) continue;
            most = fmax(most, off), sum += off, measured++;
        }
    }
    const bool same = samples->version == iteration;
    step->mismatch = same ? most : (double)NAN, step->mean_mismatch = same ? sum / (double)measured : (double)NAN;
}

static enum error_code iterate(struct rl_run *run, int64_t iteration, struct error *err)
{
    struct samples *const s = rl_samples(run, iteration);
    struct rl_step *const step = &run->record->step[iteration];
    picoseconds before = now_of(run);
    enum error_code e = prepare(run, s, step, err);
    if (!e) e = train(run, s, step, err);
    if (!e) e = slowest(run, before, &step->train, err);
    before = now_of(run);
    if (!e)
        e = weights_move(run->whole, &run->role[ROLE_TRAIN], &run->role[ROLE_ROLLOUT], &run->record->moves, err);
    if (!e) e = slowest(run, before, &step->move, err);
    if (!e && run->job->check) rl_keep_version(run, iteration + 1);
    describe(run, iteration, s, step);
    run->record->iterations = iteration + 1;
    if (!e && run->whole->rank == 0 && run->listener.ended)
        run->listener.ended(run->listener.context, iteration, step);
    if (!e && !isfinite(step->loss)) e = fail(err, ERR_DIVERGED, "iteration %lld: the loss is %g: try a smaller --lr",
                                              (long long)iteration + 1, step->loss);
    return comm_agree(run->whole, e, err);
}

/* The first policy: it has seen right answers to other prompts, as a fine-tuned model has. */
static enum error_code warm_up(struct rl_run *run, struct error *err)
{
    const struct task *const task = &run->job->task;
    struct samples *const s = &run->samples[0];
    enum error_code e = OK;
    for (int64_t w = 0; w < run->job->warm && !e; w++) {
        for (int64_t i = 0; i < s->count; i++) {
            task_prompt(task, WARM_PROMPTS + w * s->count + i, samples_at(s, i));
            s->tokens[i] = task_answer(task, samples_at(s, i), samples_at(s, i) + s->prompt);
        }
        if (run->role[ROLE_TRAIN].here) e = rl_warm(run, s, err);
        e = comm_agree(run->whole, e, err);
    }
    struct weight_moves unused = { 0 };
    struct role *const from = &run->role[ROLE_TRAIN];
    if (run->job->warm == 0) return OK;
    if (!e) e = weights_move(run->whole, from, &run->role[ROLE_ROLLOUT], &unused, err);
    if (!e && run->has[ROLE_REFERENCE])
        e = weights_move(run->whole, from, &run->role[ROLE_REFERENCE], &unused, err);
    if (!e && run->job->check) rl_keep_version(run, 0);
    return e;
}

static enum error_code iterate_all(struct rl_run *run, struct error *err)
{
    const struct rl_job *const job = run->job;
    enum error_code e = warm_up(run, err);
    clock_reset(&run->whole->device->clock);
    for (int64_t i = 0, drawn = 0; i < job->iterations && !e; i++) {
        /* Batches that are drawn with the same weights as this one. */
        for (; drawn <= i + job->staleness && drawn < job->iterations && !e; drawn++) e = loop_draw(run, drawn, err);
        if (!e) e = iterate(run, i, err);
    }
    if (!e) e = queue_check(&run->record->queue, err);
    return comm_agree(run->whole, e, err);
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static enum error_code open_record(struct rl_run *run, struct error *err)
{
    struct rl_record *const r = run->record;
    const size_t n = (size_t)run->job->iterations, samples = (size_t)samples_of(run->job);
    r->samples = (int64_t)samples;
    r->step = calloc(n + 1, sizeof *r->step), r->ends = calloc(n * samples + 1, sizeof *r->ends);
    run->row = calloc(samples + 1, sizeof *run->row);
    run->times = calloc((size_t)run->whole->size, sizeof *run->times);
    queue_open(&r->queue, 1u << TASK_ROLLOUT | 1u << TASK_REWARD | 1u << TASK_ADVANTAGE | 1u << TASK_TRAIN
               | (rl_scores(run->job) ? 1u << TASK_REFERENCE : 0) | (run->job->rule->values ? 1u << TASK_VALUE : 0));
    return r->step && r->ends && run->row && run->times ? OK
        : fail(err, ERR_MEMORY, "no memory for the record of %zu iterations", n);
}

static enum error_code open_samples(struct rl_run *run, struct error *err)
{
    const struct task *const task = &run->job->task;
    enum error_code e = OK;
    for (int i = 0; i <= run->job->staleness && !e; i++) {
        e = samples_open(&run->samples[i], samples_of(run->job), run->job->rule->values ? 1 : run->job->group,
                         task_prompt_tokens(task), task_answer_tokens(task), err);
        run->buffers += !e;
    }
    return e;
}

static enum error_code open_roles(struct rl_run *run, struct error *err)
{
    const int64_t B = run->job->plan.B;
    enum error_code e = rl_roles(run, err);
    e = comm_agree(run->whole, e, err);
    run->scorer.view.B = B;
    const struct batch_source source[ROLES] = {
        [ROLE_TRAIN] = batch_source_of(&run->policy.learner.view), [ROLE_ROLLOUT] = { .fill = NULL },
        [ROLE_REFERENCE] = batch_source_of(&run->scorer.view),
        [ROLE_CRITIC] = batch_source_of(&run->critic.learner.view),
        [ROLE_VALUES] = batch_source_of(&run->scorer.view),
    };
    for (int r = 0; r < ROLES && !e; r++)
        if (run->has[r]) e = role_open(&run->role[r], run->whole, source[r], err), run->roles = r + 1;
    return e;
}

static enum error_code rl_open(struct rl_run *run, struct error *err)
{
    run->rule = *run->job->rule;
    run->rule.reward_kl = run->job->reward_kl;
    enum error_code e = open_record(run, err);
    if (!e) e = open_samples(run, err);
    e = comm_agree(run->whole, e, err);
    if (!e) e = open_roles(run, err);
    if (!e) e = rl_open_learners(run, err);
    if (!e)
        e = rollout_open(&run->rollout, run->whole, &run->role[ROLE_ROLLOUT], &run->samples[0], run->job->plan.seed,
                         run->job->check, err);
    return e;
}

static void rl_close(struct rl_run *run)
{
    rl_close_learners(run);
    rollout_close(&run->rollout);
    for (int r = run->roles - 1; r >= 0; r--)
        if (run->has[r]) role_close(&run->role[r], run->whole);
    for (int i = 0; i < run->buffers; i++) samples_close(&run->samples[i]);
    free(run->row), free(run->times);
}

enum error_code rl_run(struct comm *whole, const struct rl_job *job, struct rl_listener listener,
                       struct rl_record *record, struct error *err)
{
    struct rl_run *const run = calloc(1, sizeof *run);
    *record = (struct rl_record){ 0 };
    if (run == NULL) return comm_agree(whole, fail(err, ERR_MEMORY, "no memory for a run"), err);
    *run = (struct rl_run){ .job = job, .whole = whole, .record = record, .listener = listener };
    enum error_code e = rl_open(run, err);
    if (!e) e = iterate_all(run, err);
    rl_close(run);
    free(run);
    return e;
}

void rl_record_free(struct rl_record *record)
{
    free(record->step), free(record->ends);
    queue_close(&record->queue);
    if (record->checked) serial_close(&record->serial);
    *record = (struct rl_record){ 0 };
}
