/* case.h -- trains one plan for a few steps and checks all of its results.
 *
 * Used by `orrery verify` and the tests.  The shapes are chosen to be difficult: no number divides another, and about
 * Called    bench/offload/rings.c, cases.c, settings.c and space.c call these functions.
 * one label in eight is ignored, so that devices have different numbers of labels that count.  Three steps of SGD
 * without clipping: Adam and clipping would hide a constant factor.
 */
#ifndef ORRERY_CASE_H
#define ORRERY_CASE_H

#include "emulated_devices/verify/cases/digest.h"
#include "emulated_devices/verify/reference/adaptation.h"
#include "emulated_devices/verify/reference/compare.h"
#include "ref/routers/router.h"

enum { CASE_STEPS = 3, CASE_TOKENS = 7, CASE_BATCH = 19, CASE_VOCABULARY = 61 };

/* Replicas that train apart: two rounds and one step of the third. */
enum { CASE_LOCAL_STEPS = 2, CASE_STEPS_APART = 2 * CASE_LOCAL_STEPS + 1 };

/** The limits in fp64, norm over norm, besides the measured bound: of an error; and of the bound, where it permits more
 *  than that.  In 16 layers with norms after them, rounding alone may move a gradient by 5e-11. */
#define CASE_FP64_ERROR 1e-12
#define CASE_FP64_BOUND 1e-9

/* A case has these results, which are equal on every device unless a comment says otherwise. */
struct outcome {
    struct comparison comparison;       /* rank 0; of every loss, gradient and weight of every device, before and after
                                         * each step */
    bool initial_equal;                 /* rank 0: the initial weights equal the reference's, bit for bit */
    struct error traffic, memory;       /* OK, or ERR_CHECK naming a device whose counter differs from its formula */
    struct error copies;                /* OK, or ERR_CHECK naming devices whose copies differ: replicas.h */
    struct error adapts;                /* OK, or ERR_CHECK: the first invariant that does not hold: adaptation.h */
    struct invariant_counts adapted[ADAPTING];          /* this device's */
    struct error encoders;              /* OK, or ERR_CHECK: of what is not text */
    uint64_t bridge;                    /* bytes of this device's buffers for embeddings, at most */
    uint64_t bridged;                   /* rank 0: bytes that all devices have sent for these */
    uint64_t copies_compared;           /* rank 0 */
    struct error verdict;               /* OK, or ERR_CHECK: the first of all these checks that fails */
    uint64_t hash;                      /* of this device's own weights at the end */
    uint64_t whole_hash;                /* rank 0: of the whole model's weights, independent of the mesh */
    struct digest digest;               /* rank 0: of what all devices have computed and counted */
    uint64_t activations;               /* this device's peak, in bytes */
    uint64_t model_state;               /* sum of the peaks of weights, gradients, masters and optimizer state */
    double loss;                        /**< Loss of the last step. */
    int64_t skipped;                    /* steps */
    double flops;                       /* this device's, of all steps */
    picoseconds time;                   /* this device's virtual time, on the plan's cluster */
};

/** A plan in fp64 with the default schemes, tied embedding, two microbatches, and one layer more than two stages per
 *  device need. */
struct plan case_plan(int dp, int tp, int pp);

/* A shape of each architecture; the first is case_plan's. */
struct case_model { const char *name; void (*take)(struct plan *); };
const struct case_model *case_model_at(int place);      /* NULL after the last */

/** Train a Llama instead: query heads in groups of 3, so that with 4 or more parts key/value heads have copies. */
void case_take_llama(struct plan *);

/** Cut sequences over cp devices by an attention scheme. */
void case_take_context(struct plan *, int cp, const char *attention);

/** Cut experts into ep parts by an expert scheme. */
void case_take_experts(struct plan *, int ep, const char *dispatch);

/** Train a GPT-J instead: parallel blocks, rotation of four of a head's five numbers, a biased output. */
void case_take_gptj(struct plan *);
void case_take_qwen2(struct plan *);
void case_take_qwen3(struct plan *);
void case_take_qwen3_moe(struct plan *);
void case_take_gemma(struct plan *);
void case_take_gemma2(struct plan *);
void case_take_gemma3(struct plan *);
void case_take_deepseek(struct plan *);
void case_take_gpt_oss(struct plan *);
void case_take_deepseek_v3(struct plan *);
void case_take_biased(struct plan *);
void case_take_windows(struct plan *);
void case_take_phi3(struct plan *);
void case_take_olmo2(struct plan *);
void case_take_streams(struct plan *);

/** Train a Mixtral instead: 5 experts, 2 for each token, a balance loss and a z loss. */
void case_take_mixtral(struct plan *);
void case_take_scmoe(struct plan *);

/** Give a mixture another router, and 6 experts, which make up groups.  Other models stay as they are. */
void case_take_router(struct plan *, const struct router *);

/** Untie the output matrix, and use dropout in all three places. */
void case_take_dropout(struct plan *);

/** Give a plan an optimizer, without clipping.  sides: for one that is forward_only, 1 or 2 (plan.h). */
void case_take_optimizer(struct plan *, const struct optimizer *, int sides);

/** The number of steps in a case of a plan. */
int case_steps(const struct plan *);

/** Give a plan a schedule, with numbers of chunks and microbatches that it accepts.
 *  @return OK, or plan_check's error for the last numbers tried; the plan is then invalid. */
enum error_code case_take_schedule(struct plan *, const char *schedule, struct error *);

/** Give a plan the conventions of a profile, enum profile, with decay and clipping, where they differ. */
void case_take_profile(struct plan *, int profile);

/** Give a plan an optimizer that projects gradients onto few directions, recomputed in every second step; without
 *  clipping. */
void case_take_low_rank(struct plan *, const struct optimizer *);
/** Train with forward passes only.  sides: 1 or 2 (plan.h). */
void case_take_mezo(struct plan *, int sides);
/** Train with a data-parallel scheme; if its copies train apart, in rounds of CASE_LOCAL_STEPS. */
void case_take_data(struct plan *, const struct data_scheme *);

/** Make the second half of the pipeline's places slower, so that they get fewer layers; before plan_check. */
void case_take_speeds(struct plan *);

/**
 * A key: plans with equal keys end with the same bits, if data schemes use their default algorithms.
 *
 * The key leaves out what changes no bit: recomputation, where numbers are stored and when they are gathered, buckets,
 * which stages devices have, a schedule's order of computations, what each device keeps.  It has everything that
 * changes the order of additions: of weight gradients over microbatches, on one copy of each stage; over dp level by
 * level, in the order of ranks.
 */
enum error_code case_bits_key(const struct plan *, uint64_t *key, struct error *);

/**
 * Train a plan beside the reference.
 * Collective over all processes of the job; connects and disconnects itself, so it may run inside another comm.
 * If weights are sent quantised, rounding errors can change a code; therefore the reference then continues from the
 * devices' weights after each step.
 * @param plan  has passed plan_check; its devices are those of the job, on its cluster.
 * @return OK when there is an outcome, with any verdict; or the same error on every device.
 */
enum error_code case_run(const struct plan *plan, struct outcome *, struct error *);

/**
 * Train a plan without the reference, and hash its final weights.
 * Collective as case_run.
 * @param[out] whole_hash  on rank 0: of the whole model's weights, independent of the mesh.
 * @param[out] last        the last step's loss and norm; may be NULL.
 */
enum error_code case_train(const struct plan *plan, int steps, uint64_t *whole_hash, struct step_result *last,
                           struct error *);

#endif
