/* learner.c -- losses of rows by the rule.  loop.c calls.  Errors are those of a step. */
#include "emulated_devices/rl/learner.h"
#include <math.h>

/* Tokens of the answers of a step's samples. */
static int64_t tokens_of_step(const struct learner *learner, int64_t first)
{
    int64_t tokens = 0;
    for (int64_t b = 0; b < learner->view.B; b++) tokens += learner->samples->tokens[first + b];
    return tokens;
}

static double learner_weight(const struct learner *learner, int64_t at)
{
    const struct samples *const s = learner->samples;
    const int64_t sample = at / s->most, first = sample / learner->view.B * learner->view.B;
    return policy_weight(learner->rule, tokens_of_step(learner, first), s->tokens[sample], learner->view.B, s->most);
}

static double policy_row(const void *context, int64_t row, double logp, double *slope)
{
    const struct learner *const learner = context;
    const struct samples *const s = learner->samples;
    const int64_t at = batch_place(&learner->view, *learner->step, row);
    const struct policy_token token = { s->old[at], s->ref[at], s->advantage[at] };
    const double weight = learner->rule->mean == MEAN_OF_TOKENS ? 1 : learner_weight(learner, at);
    if (learner->notes && isnan(s->now[at])) s->now[at] = logp;
    const double loss = policy_loss(learner->rule, &token, learner->kl, logp, slope, NULL);
    if (slope) *slope *= weight;
    return weight * loss;
}

static double critic_row(const void *context, int64_t row, double value, double *slope)
{
    const struct learner *const learner = context;
    const struct samples *const s = learner->samples;
    const int64_t at = batch_place(&learner->view, *learner->step, row);
    return policy_value_loss(learner->rule, s->value[at], s->returned[at], value, slope);
}

void learner_open(struct learner *learner, const struct policy_rule *rule, double kl, bool critic, int64_t B,
                  const int64_t *step)
{
    *learner = (struct learner){ .rule = rule, .kl = kl, .view = { .B = B, .critic = critic }, .step = step };
    learner->loss = (struct row_loss){ .of_row = critic ? critic_row : policy_row, .context = learner,
                                       .of_logit = critic };
}

void learner_take(struct learner *learner, struct samples *samples)
{
    learner->samples = samples, learner->view.samples = samples, learner->view.begin = *learner->step;
}

enum error_code learner_train(struct learner *learner, struct trainer *trainer, int64_t steps,
                              const struct training_observer *observers, int count, struct step_result *last,
                              struct error *err)
{
    for (int c = 0; c < trainer->plan.chunks; c++) trainer->stage[c].row_loss = &learner->loss;
    learner->notes = !learner->view.critic;
    for (int64_t i = 0; i < learner->samples->count * learner->samples->most && learner->notes; i++)
        learner->samples->now[i] = i % learner->samples->most
            < learner->samples->tokens[i / learner->samples->most] ? (double)NAN : 0;
    const enum error_code e = training_run(trainer, steps, observers, count, last, err);
    for (int c = 0; c < trainer->plan.chunks; c++) trainer->stage[c].row_loss = NULL;
    return e;
}

int64_t learner_clipped(const struct learner *learner)
{
    const struct samples *const s = learner->samples;
    int64_t clipped = 0;
    for (int64_t at = 0; at < s->count * s->most; at++) {
        const struct policy_token token = { s->old[at], s->ref[at], s->advantage[at] };
        bool out = false;
        if (isnan(s->now[at])) continue;
        policy_loss(learner->rule, &token, 0, s->now[at], NULL, &out);
        clipped += out;
    }
    return clipped;
}
