/* loop.h -- reinforcement learning on emulated devices: answers are drawn, scored, rewarded and trained on.
 *
 * Iteration i draws answers with the weights of version max(0, i - staleness); version v are the weights after v
 * iterations.  With staleness 0 each iteration waits for the training before it, as a synchronous program does.
 * Batches are drawn so far ahead, so the log of versions is known beforehand, and the same for the one-device run.
 *
 * Tasks run on the same devices, or each on devices of its own (role.h); a queue hands samples from task to task
 * (queue.h).  cli/train/rl.c and tests call rl_run.
 */
#ifndef ORRERY_RL_LOOP_H
#define ORRERY_RL_LOOP_H

#include "emulated_devices/rl/advantage.h"
#include "emulated_devices/rl/learner.h"
#include "emulated_devices/rl/queue.h"
#include "emulated_devices/rl/rollout.h"
#include "emulated_devices/rl/serial.h"
#include "emulated_devices/verify/reference/comparison.h"

enum { RL_MOST_STALENESS = 16, RL_MOST_GROUP = 1 << 10 };

/* All that a run is asked for. */
struct rl_job {
    struct plan plan;                   /* that trains: a step has B samples of S tokens */
    int rollout[AXIS_COUNT], reference[AXIS_COUNT];     /* meshes of these tasks; size 0: that of training */
    bool apart;                         /* each task on devices of its own */
    const struct policy_rule *rule;     /* losses and advantages */
    double kl, reward_kl;               /* coefficients of the distance, in the loss and in rewards */
    struct task task;                   /* what is learned */
    int group, minibatches, epochs, staleness;
    double warm_lr;                     /* the rate at which it does so */
    int64_t warm;                       /* batches of right answers that the policy learns first, by cross entropy */
    int64_t iterations;                 /**< Iterations that the run does. */
    bool check;                         /* beside the one-device run */
};

/* The numbers of an iteration, on rank 0. */
struct rl_step {
    int64_t version;                    /* of the weights that drew its answers */
    double reward, right, tokens;       /* means: rewards; answers that are right; tokens of an answer */
    double loss, norm, value_loss;      /* of the last training step; of the critic */
    double kl, clipped;                 /* means over tokens: estimate of the distance from the reference, k3; ratios
                                         * without a part in the loss */
    double mismatch, mean_mismatch;     /* |log p when drawn - log p in training| over tokens of the first training
                                         * step, with the same weights; NaN: the weights were others */
    struct reward_spread spread;               /* over all devices, where the rule has it */
    picoseconds draw, train, move;      /* virtual time of the slowest device of the task, and of moving weights */
};

/* The results of a run, on rank 0. */
struct rl_record {
    int64_t iterations;                 /* done */
    struct rl_step *step;               /* [iterations] */
    double *ends;                       /* [iterations, samples] seconds after an iteration's first token is asked for
                                         * at which each answer was there */
    int64_t samples;                    /* of an iteration */
    struct weight_moves moves;          /* of weights to the devices that draw */
    struct comparison comparison, critic;       /* of training steps, with the one-device run */
    struct serial serial;               /* of answers and scores, likewise */
    int64_t silent;                     /* training steps without any advantage: their gradients are rounding alone, or
                                         * that of the distance */
    bool checked;                       /* these are there */
    struct queue queue;                 /* that all samples have gone through */
};

/* Is told of each iteration, on rank 0. */
struct rl_listener { void *context; void (*ended)(void *context, int64_t iteration, const struct rl_step *); };

/** The plan of the devices: places of the tasks, and their plans checked.
 *  @param[out] devices  of the job.  @return OK, or ERR_PLAN naming the task. */
enum error_code rl_devices(const struct rl_job *, int *devices, struct error *);

/** Tokens of a sample. */
int64_t rl_length(const struct task *);

/** Run.  Collective over all devices of the job.
 *  @param[out] record  for rl_record_free on all devices; complete on rank 0.
 *  @return OK, or the same error on all devices; differences from the one-device run are in the record. */
enum error_code rl_run(struct comm *, const struct rl_job *, struct rl_listener, struct rl_record *record,
                       struct error *);
void rl_record_free(struct rl_record *);

/** Whether the one-device run has the same.  @return OK, or ERR_CHECK in one line. */
enum error_code rl_verdict(const struct rl_record *, const struct plan *, struct error *);

#endif
