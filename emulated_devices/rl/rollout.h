/* rollout.h -- devices draw answers: with the scheduler and the pages of serving, from the weights of a role.
 *
 * Prompts are dealt to the replicas in turn.  The first device of a replica's last stage gathers the logits, draws each
 * token with the sample's own seed, and tells the replica the tokens with their log-probabilities.  These are made by
 * the operations that training has (ops/cross_entropy.c), of the same logits but for rounding.
 *
 * loop.c calls these functions; serial.c judges what comes.
 */
#ifndef ORRERY_RL_ROLLOUT_H
#define ORRERY_RL_ROLLOUT_H

#include "emulated_devices/rl/role.h"
#include "emulated_devices/rl/samples.h"
#include "emulated_devices/serve/pages.h"

struct rollout {
    struct role *role;                  /* the caller's, open */
    struct serving_limits limits;       /* of a replica */
    uint64_t seed;                      /* of a sample: this, plus its number in the run */
    bool keeps;                         /* logits, for the judge */
    struct pages pages;                 /* keys and values of this device */
    struct scheduler scheduler;         /* open while answers are drawn */
    struct answering answering;         /* what its stage asks of it */
    struct group replica;               /* devices that answer the same prompts */
    int root, number;                   /* the member that draws; the replica's number */
    bool draws;                         /* this device does */
    int32_t *id, *position, *asked;     /* [step_tokens] */
    struct tensor message;              /* what the replica is told, in the device's memory */
    int32_t *told;                      /* the same on the host */
    double *p;                          /* [V] probabilities */
    struct samples *samples;            /* that are drawn */
    double *logits;                     /* [count, most, V] of this device's answers, where `keeps`; NaN: none */
    picoseconds *end;                   /* [count] virtual time of each answer's last token, here; -1: elsewhere */
};

/** Open on the devices of the role.  Collective over the job.  @return as role_open; rollout_close works after both. */
enum error_code rollout_open(struct rollout *, struct comm *whole, struct role *, const struct samples *,
                             uint64_t seed, bool keeps, struct error *);
void rollout_close(struct rollout *);

/** The log-probability of a token after a row of logits [1, V] in the host's memory, by the operations of training. */
double rollout_logp(enum exact_rule, struct tensor logits, int32_t token);

/** The sampling of a sample's answer. */
struct sampling rollout_sampling(uint64_t seed, int64_t number);

/** Draw the answers of all samples, whose prompts are there.  Collective over the job; all devices then have answers,
 *  log-probabilities, and the times at which answers ended.
 *  @return OK or the same error on all devices; inside iterations a failure ends the job. */
enum error_code rollout_run(struct rollout *, struct comm *whole, struct samples *, struct error *);

#endif
