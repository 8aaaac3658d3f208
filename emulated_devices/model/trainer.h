/* trainer.h -- one device's part in training a model on a plan: step by step, together with the other devices. */
#ifndef ORRERY_TRAINER_H
#define ORRERY_TRAINER_H

#include "emulated_devices/model/stage.h"
#include "emulated_devices/schemes/pipeline/execute.h"

/* Where tokens come from: sequences first .. first + count - 1 of the batch of a step, the same on every device.
 * ids, labels: int32 [count*S]; labels may be IGNORE_LABEL. */
struct batch_source {
    void (*fill)(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels);
    const void *context;
};

struct trainer {
    struct plan plan;
    struct device *device;
    struct comm *comm;
    struct group world, dp, tp, pp, cp, ep, replica; /* dp: devices with the same weights, along dp and cp; replica:
                                                             * of devices that add up one gradient: the world, unless
                                                             * replicas train apart */
    struct group side, sides; /* without a backward pass: devices that take losses on one side of the weights, on
                                         * either one (zeroth.h) */
    struct schedule schedule;
    struct action_time *times;          /* [actions of this device] of the last step, in virtual time */
    struct tensor_parallel tensor;
    struct seams seams;
    struct data_parallel data;
    struct parameters parameters;
    struct param_spec *spec;            /* [model_param_count] of the whole model, for code that reads other devices' */
    struct stage *stage;                /* [chunks] */
    int stages_open;
    struct batch_source source;
    int32_t *scratch;                   /* [2*B*S] ids and labels of the largest batch */
    int64_t step;                       /* steps done */
    struct held held;                   /* activations, where batches differ: the most of all steps, and since training
                                         * began of those begun */
    struct ledger begun;                /* what those steps send, likewise */
    int64_t *counted;  /* [updates] labels that count, of the replica's sequences of each optimizer step of this step */
    int64_t labels;                     /* that count, of the whole batch */
    struct routers routers;             /* of a mixture: mixture.h */
    double norm;                        /* of the replica's gradients, before clipping */
    int updated;                        /* optimizer steps taken in this step so far */
    struct loss_scale loss_scale;       /* the same on every device */
    int64_t skipped, skipped_before;    /* steps that were left out because a gradient was not finite, ever; and before
                                         * this run */
};

/* The same on every device. */
struct step_result {
    double loss;                        /* mean over the labels of the whole batch, before the step that each is for */
    double norm; /* global norm of the gradients, before clipping; of several optimizer steps, the last;
                                           of replicas that train apart, the root of the mean of their squares */
    double side[2],
        slope; /* of an optimizer without a backward pass: the losses on either side of the weights, of which
                                           `loss` is then the mean, and the slope between them; there is no norm */
    double lr;
    double loss_scale;                /* that the gradients were computed with; they still have it, the norm does not */
    bool skipped;                       /* a gradient was not finite: no device has taken the step */
};

/**
 * Find this device's part: groups, layouts, lists of what is done in which order.  All formulas below are true of it;
 * it has no weights, gradients and states, and cannot train.
 * Local.  The plan must have passed plan_check.
 * @param comm  of an outline that only is looked at, it need not be connected: device, rank, size and contexts suffice.
 * @return OK or ERR_MEMORY; trainer_close works after both.
 */
enum error_code trainer_outline(struct trainer *, const struct plan *plan, struct comm *comm, struct error *);

/**
 * Build this device's part: its outline, initial weights, optimizer state.
 * Collective over all devices.  The plan must have passed plan_check.
 * @param source  must outlive the trainer.
 * @return OK, or the same error on every device, with nothing to close.
 */
enum error_code trainer_open(struct trainer *, const struct plan *, struct comm *, struct batch_source source,
                             struct error *);
void trainer_close(struct trainer *);

/** Have this device's activations and their gradients shown to a probe as they are computed; NULL: to none.
 * Local. */
void trainer_watch(struct trainer *, const struct probe *);

/** Every action of the device's list once.  The batch has been taken.  @param[out] loss  the sum over the labels that
 *  this device has the loss of.  Collective over the pp and tp groups. */
enum error_code trainer_pass(struct trainer *, double *loss, struct error *);

/**
 * The first half of a step: forward, backward and reduction.  Then every parameter's g is the gradient of the mean loss
 * over the whole batch, or the replica's part of it where replicas train apart, this device's boxes of it; where
 * projected gradients were reduced, R and then zeros (ref/optim/galore.h).  Where the schedule steps the optimizer in
 * mid-stream, all its steps but the last have been taken, and g is the last one's gradient.  Without a backward pass:
 * both losses and the slope.  Collective over all devices.
 * @return OK or the same error on every device.
 */
enum error_code trainer_gradients(struct trainer *, struct step_result *, struct error *);

/** The second half: clip, step the weights, zero the gradients.  Collective.
 *  With a loss scale that changes, a step whose norm is infinite or NaN is left out: the norm is a sum of squares in
 *  double, which no sum of finite gradients makes infinite, and all devices have the same one.
 *  @return OK or the same error on every device; ERR_MEMORY if one has gone over its budget in this step. */
enum error_code trainer_update(struct trainer *, struct step_result *, struct error *);

/** What every step's seed of dropout is made from. */
uint64_t dropout_seed(uint64_t seed, int64_t step);

/** What this device sends and adds in one step for one kind of schemes, from the table of the model, the plan and the
 *  schedule, exactly.  Of an optimizer that projects gradients, in a step that finds directions anew. */
struct account trainer_cost(const struct trainer *, enum traffic_kind);

/** The same of all kinds, for the steps that this trainer has done since it was opened: of skipped ones, without the
 *  new weights; of projected gradients, without what was projected away.  What the counters must show, and what the
 *  calls must have entered. */
void trainer_predict(const struct trainer *, int64_t steps, struct ledger *);

/** What this device has read from the slow tier and written to it in these steps, by formula, exactly:
 * what the tier has counted. */
struct tier_traffic trainer_tier_traffic_so_far(const struct trainer *, int64_t steps);

/** Peak bytes of this device in one tag, by formula, exactly, for PARAMETERS, GRADIENTS, OPTIMIZER and ACTIVATIONS:
 *  what the arena must show after a step.  Activations: the most that the device's list of actions holds at once. */
uint64_t trainer_peak(const struct trainer *, enum arena_tag);

/** Bytes that this device's peaks come to together, at least: what is kept all the time, and the most of what the lists
 *  of actions and passes hold at one moment.  What collectives and operations need for themselves is not in it. */
uint64_t trainer_least(const struct trainer *);

#endif
