/* learner.h -- what a policy, and its critic, are trained for: the losses of rows, from samples and a rule.
 *
 * loop.c trains with these losses on devices, and gives the same to the one-device run.
 */
#ifndef ORRERY_RL_LEARNER_H
#define ORRERY_RL_LEARNER_H

#include "emulated_devices/rl/batch.h"
#include "emulated_devices/train/training.h"
#include "ref/policy/policy.h"

struct learner {
    const struct policy_rule *rule;     /* of the run */
    double kl;                          /* coefficient of the distance in the loss */
    struct batch_view view;             /* of the iteration's samples */
    const int64_t *step;                /* of whoever trains: it says which samples a row is of */
    struct row_loss loss;               /* what the stages ask */
    bool notes;                         /* log-probabilities go to samples->now */
    struct samples *samples;            /* the same as the view's */
};

/** Losses of a policy, or of a critic.  @param B  samples of a step.  @param step  outlives the learner. */
void learner_open(struct learner *, const struct policy_rule *, double kl, bool critic, int64_t B,
                  const int64_t *step);

/** Take the samples of an iteration, whose advantages are there. */
void learner_take(struct learner *, struct samples *);

/** Train on them.  Collective over the trainer's devices.
 *  @param steps, observers, last  as for training_run.  @return as training_run. */
enum error_code learner_train(struct learner *, struct trainer *, int64_t steps,
                              const struct training_observer *observers, int count, struct step_result *last,
                              struct error *);

/** How often the ratio of a token has had no part in the loss, at the log-probabilities noted here. */
int64_t learner_clipped(const struct learner *);

#endif
