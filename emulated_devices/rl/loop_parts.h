/* loop_parts.h -- one device's run, for the files that are it: loop.c (iterations), loop_open.c (roles and plans),
 * loop_check.c (training steps, and the one-device run beside them).  No other file includes this one. */
#ifndef ORRERY_RL_LOOP_PARTS_H
#define ORRERY_RL_LOOP_PARTS_H

#include "emulated_devices/rl/loop.h"
#include "emulated_devices/verify/reference/watch.h"

/* Devices of the job by what they do; the critic is trained where the policy is, and its values are computed where the
 * reference policy is. */
enum role_kind { ROLE_TRAIN, ROLE_ROLLOUT, ROLE_REFERENCE, ROLE_CRITIC, ROLE_VALUES, ROLES };

/* One model that is trained, and the one-device run beside it, whose losses of rows have steps of their own. */
struct trained {
    struct role *role;                  /* the run's */
    struct learner learner, alone;      /* of the devices; of the one-device run */
    struct reference reference;         /* on rank 0 with a check */
    struct probes probes;               /* likewise on each device of the role */
    struct comparison *comparison;      /* the record's */
    struct reference_watch watch;       /* likewise */
    bool referenced, probed;            /* what is open */
    int64_t unjudged;                   /* before the step, of the comparison */
    int64_t *silent;                    /* the record's count of steps without any advantage */
};

struct rl_run {
    const struct rl_job *job;           /* the caller's */
    struct comm *whole;                 /* of the job */
    struct rl_record *record;           /* the caller's */
    struct rl_listener listener;        /* of iterations */
    struct policy_rule rule;            /* the job's, with its coefficient of rewards */
    struct role role[ROLES];            /* those that `has` names are open, up to `roles` */
    bool has[ROLES];                    /**< Roles that the job has. */
    int roles;                          /**< Index after the last open role. */
    struct samples samples[RL_MOST_STALENESS + 1];      /* of iterations that are drawn and not trained on; [buffers] */
    int buffers;                                        /**< Entries of `samples`. */
    struct rollout rollout;                             /**< Part that draws samples. */
    struct scorer scorer;               /* of the reference policy, and of values */
    struct trained policy, critic;      /* the critic where the rule has values */
    struct weight_moves values_moved;   /* of the critic to where values are computed */
    int64_t *row;                       /* [samples] from the queue */
    picoseconds *times;                 /* [devices] */
};

/* The version of the weights that draw an iteration's answers. */
static inline int64_t rl_version(const struct rl_job *job, int64_t iteration)
{
    return iteration > job->staleness ? iteration - job->staleness : 0;
}

static inline struct samples *rl_samples(struct rl_run *run, int64_t iteration)
{
    return &run->samples[iteration % (run->job->staleness + 1)];
}

/* Whether answers are scored by the reference policy. */
static inline bool rl_scores(const struct rl_job *job)
{
    return (job->kl > 0 && job->rule->distance != DISTANCE_NONE) || (job->rule->values && job->reward_kl > 0);
}

/** Make the roles of a run: which there are, where, and their plans.  Local.  @return OK or ERR_PLAN. */
enum error_code rl_roles(struct rl_run *, struct error *);

/** Open what trains, and with a check the one-device runs.  Collective over the job. */
enum error_code rl_open_learners(struct rl_run *, struct error *);
void rl_close_learners(struct rl_run *);

/** Train one model on an iteration's samples.  Collective over its role's devices. */
enum error_code rl_train(struct rl_run *, struct trained *, int64_t steps, struct samples *, struct step_result *last,
                         struct error *);

/** Train the policy on right answers by cross entropy.  Collective over its devices. */
enum error_code rl_warm(struct rl_run *, struct samples *, struct error *);

/** With a check, on rank 0 alone; collective over the job. */
enum error_code rl_judge_answers(struct rl_run *, struct samples *, struct error *);
enum error_code rl_judge_scores(struct rl_run *, struct samples *, struct error *);
void rl_keep_version(struct rl_run *, int64_t version);

#endif
