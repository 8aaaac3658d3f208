/* samples.h -- the samples of one iteration: prompts, answers, and what tasks have made of them, on every device.
 *
 * Numbers of tokens lie at [sample * most + place in the answer].  What some devices have computed comes to all by
 * samples_share: rank 0 takes each number from the device that has it.
 *
 * Files of rl/ call these functions.
 */
#ifndef ORRERY_RL_SAMPLES_H
#define ORRERY_RL_SAMPLES_H

#include "emulated_devices/comm/comm.h"

struct samples {
    int64_t count, group;               /* samples; those of one prompt, which follow each other */
    int64_t prompt, most;               /* tokens of a prompt; of an answer at most */
    int64_t first;                      /* number of the first sample in the run */
    int64_t version;                    /* of the weights that drew the answers */
    int32_t *token;                     /* [count, prompt + most] */
    int64_t *tokens;                    /* [count] of each answer */
    double *old, *ref, *value;          /* [count, most] log-probabilities when drawn, and of the reference policy;
                                         * values of the critic */
    double *now;                        /* [count, most] log-probabilities in the first training step that has them,
                                         * on the device that computes them; NaN elsewhere */
    double *reward;                     /* [count] */
    double *advantage, *returned;       /* [count, most] */
};

/** @return OK, or ERR_MEMORY with nothing to close. */
enum error_code samples_open(struct samples *, int64_t count, int64_t group, int64_t prompt, int64_t most,
                             struct error *);
void samples_close(struct samples *);

/** Tokens of a sequence: of a prompt with its longest answer. */
static inline int64_t samples_length(const struct samples *samples) { return samples->prompt + samples->most; }
static inline int32_t *samples_at(const struct samples *samples, int64_t sample)
{
    return samples->token + sample * samples_length(samples);
}

/** Tokens of all answers. */
int64_t samples_tokens(const struct samples *);

/** Give every device the numbers that any device has.  Collective; counted as CONTROL.
 *  @param x  [count] NaN where this device has none.  @return OK; ERR_MEMORY; ERR_INTERNAL if nobody has one. */
enum error_code samples_share(struct comm *, double *x, int64_t count, const char *what, struct error *);

#endif
