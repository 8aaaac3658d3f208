/* case.h -- one plan, trained for a few steps, and everything about it held to what it must be.
 *
 * What `orrery verify` and the tests run.  The shape is nasty on purpose: nothing divides anything, about one label in
 * eight is ignored, so that devices hold different numbers of those that count.  Three steps of SGD without clipping:
 * Adam and clipping would hide a constant factor.
 */
#ifndef ORRERY_CASE_H
#define ORRERY_CASE_H

#include "emulated_devices/verify/compare.h"

enum { CASE_STEPS = 3, CASE_TOKENS = 7, CASE_BATCH = 19 };

/* Replicas that train apart take two rounds, and a step of the third. */
enum { CASE_LOCAL_STEPS = 2, CASE_STEPS_APART = 2 * CASE_LOCAL_STEPS + 1 };

/** What fp64 is held to, norm over norm, besides its measured bound. */
#define CASE_FP64_ERROR 1e-12

/** The same of a plan: where there is no backward pass, what a loss may be off by is in the slope, and in weights that
 *  were zero before the first step, 1 / (2 eps) times from either side.  (Losses are held to 1e-12 there too.) */
double case_fp64_error(const struct plan *);

/* What was found.  On every device the same, where not said otherwise. */
struct outcome {
    struct comparison comparison;       /* rank 0; of every loss, gradient and weight of every device, before and after
                                         * each step */
    bool initial_equal;                 /* rank 0: the first weights are the reference's, bit for bit */
    struct error traffic, memory;       /* OK, or ERR_CHECK and which device counted what its formula does not say */
    struct error copies;                /* OK, or ERR_CHECK and which device has other bits than another: replicas.h */
    uint64_t copies_compared;           /* rank 0 */
    struct error verdict;               /* OK, or ERR_CHECK and the first of all these that does not hold */
    uint64_t hash;                      /* of this device's own weights at the end */
    uint64_t whole_hash;                /* rank 0: of the whole model's, whatever the mesh */
    uint64_t activations;               /* peak bytes of this device's */
    uint64_t model_state;               /* of weights, gradients, masters and optimizer state, each at its peak */
    double loss;
    int64_t skipped;                    /* steps */
    double flops;                       /* this device's, of all steps */
};

/** A plan in fp64 with the default schemes, tied, two microbatches;
 * a layer more than two stages on each device need. */
struct plan case_plan(int dp, int tp, int pp);

/* A shape of each architecture; the first is the one that case_plan begins with. */
struct case_model { const char *name; void (*take)(struct plan *); };
const struct case_model *case_model_at(int place);      /* NULL behind the last */

/** Train a Llama instead, as nasty: query heads in groups of 3, so that from 4 parts on key/value heads have copies. */
void case_take_llama(struct plan *);

/** Cut sequences over cp devices by an attention scheme. */
void case_take_context(struct plan *, int cp, const char *attention);

/** Train a GPT-J instead, as nasty: parallel blocks, four of a head's five numbers turned, a biased output. */
void case_take_gptj(struct plan *);

/** Train a Mixtral instead: 5 experts of which a token goes to 2, with a balance loss and a z loss,
 * all forward passes first. */
void case_take_mixtral(struct plan *);

/** Untie the output matrix, and drop out in all three places. */
void case_take_dropout(struct plan *);

/** Give a plan an optimizer, without clipping.  sides: of one that is forward_only, 1 or 2 (plan.h). */
void case_take_optimizer(struct plan *, const struct optimizer *, int sides);

/** How many steps a case of a plan takes. */
int case_steps(const struct plan *);

/** Give a plan a schedule, with as many chunks and microbatches as it takes.
 *  @return OK, or what plan_check has against the last that was tried; the plan is then of no use. */
enum error_code case_take_schedule(struct plan *, const char *schedule, struct error *);

/** Give a plan an optimizer that projects gradients, onto few directions, which are found anew in
 * every second step; without clipping. */
void case_take_low_rank(struct plan *, const struct optimizer *);
/** Train with forward passes alone, sides: 1, or 2 (plan.h). */
void case_take_mezo(struct plan *, int sides);
/** Train under a data-parallel scheme; where its copies train apart, in rounds that a case has two of. */
void case_take_data(struct plan *, const struct data_scheme *);

/** Make the second half of the pipeline's places slower, so that they get fewer layers; before plan_check. */
void case_take_speeds(struct plan *);

/**
 * Plans of one key end with the same bits, where data schemes have their usual algorithms.
 *
 * What changes no bit is left out of the key: recomputing, where numbers lie and when they are gathered, buckets, which
 * stages devices have, the order in which a schedule computes, who keeps what.  What is in it is who adds what in which
 * order: weight gradients in the order of the microbatches, on one copy of each stage; over dp level by level, in the
 * order of ranks.
 */
enum error_code case_bits_key(const struct plan *, uint64_t *key, struct error *);

/**
 * Train a plan beside the reference.
 * Collective over all processes of the job; connects and disconnects by itself, so it may run within another comm.
 * Weights that travel quantised round to other codes where rounding moves them across a tie, so that then the reference
 * goes on from the devices' weights after each step.
 * @param plan  has passed plan_check; its devices are those of the job, on its cluster.
 * @return OK when there is an outcome, whatever its verdict; or the same error on every device.
 */
enum error_code case_run(const struct plan *plan, struct outcome *, struct error *);

/**
 * Train a plan alone: what its weights are in the end.
 * Collective as case_run.
 * @param[out] whole_hash  of the whole model's weights, whatever the mesh: on rank 0.
 * @param[out] last        the last step's loss and norm; NULL: not wanted.
 */
enum error_code case_train(const struct plan *plan, int steps, uint64_t *whole_hash, struct step_result *last,
                           struct error *);

#endif
