/* trainer.h -- training a model on a plan: one device's part of each step.  Files of verify/, model/, train/, run/
 * and other rooms call these functions. */
#ifndef ORRERY_TRAINER_H
#define ORRERY_TRAINER_H

#include "emulated_devices/model/encoders.h"
#include "emulated_devices/model/result.h"
#include "emulated_devices/model/stage.h"
#include "emulated_devices/schemes/pipeline/execute.h"

/* The source of tokens: sequences first .. first + count - 1 of the batch of a step, the same on every device.
 * ids, labels: int32 [count*S]; labels may be IGNORE_LABEL.  within: int32 [count*S], the position of each token in its
 * sample, and what is padding (ref/model/sample_mask.h), if the plan says that samples are packed; else NULL.
 * fill NULL: there are no tokens; all are 0, none is ignored.  For devices without numbers, and plans of whole
 * sequences. */
struct batch_source {
    /* Fills ids and labels [count*S] of these sequences; the text above the struct says when it is NULL. */
    void (*fill)(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within);
    const void *context;                /* first argument of fill and share */
    /* For devices of one process without numbers, whose plan has lengths: the batch in memory that all of them share,
     * until this device asks for the next step's; then fill is not called.  NULL: each has memory of its own. */
    const struct shared_batch *(*share)(const void *context, int64_t step);
};

/* A step's batch, which devices of one process share. */
struct shared_batch {
    int32_t *tokens;                    /* [3, B*S] ids, labels and positions in samples */
    int32_t *mask;                      /* [B*S, 2R] what each token sees, R ranges, microbatch by microbatch */
    bool *masked;                       /* [B] of the first sequence of a microbatch: its mask is there */
    struct step_samples samples;        /* their lengths, and how many labels count */
};

struct trainer {
    struct plan plan;                   /* a copy, checked */
    struct device *device;              /* the caller's */
    struct comm *comm;                  /* the caller's */
    struct group world, dp, tp, pp, cp; /* dp: devices with the same weights, along dp and cp */
    struct result_groups result;        /* devices that sum one loss: all, unless replicas train apart */
    struct group ep, etp, same_experts; /* devices that share the experts of a layer; F of each; that have the same
                                         * parts of the same ones, if only some devices have them */
    struct group cp_part[ATTENTION_GROUPS], ep_part[EXPERT_GROUPS];     /* some of cp, of ep, for schemes that open
                                                                         * them */
    struct group side, sides;           /* without a backward pass: the devices of this side of the weights; this place
                                         * on both sides (zeroth.h) */
    struct schedule schedule;           /* of the pipeline, also of one stage */
    struct trainer *section;            /* [sections] of a plan with sections: a trainer of each, without anything where
                                         * this device has no part in it; NULL: of a section, or a plan without */
    struct boundary *boundary;          /* [sections] how the residual stream gets from each to the next
                                         * (model/sections/sections_run.h) */
    struct tied *tied;                  /* the gradients of an embedding that two sections have; NULL: none has */
    struct group between;               /* all devices, which send both */
    int *use_end;                       /* [actions of this device + 1] the data scheme's uses before each of them */
    struct action_time *times;          /* [actions of this device] of the last step, in virtual time */
    struct tensor_parallel tensor;      /* how matrices are cut */
    struct seams seams;                 /* the schemes for matrices, tokens and experts together */
    struct data_parallel data;          /* owns weights, gradients and states of the optimizer */
    struct parameters parameters;       /* this device's pieces of the model */
    struct stage *stage;                /* [chunks] */
    int stages_open;                    /* stages that trainer_close must close */
    struct batch_source source;         /* where tokens come from */
    int32_t *scratch;                   /* [3*B*S] ids, labels and positions in samples, of the largest batch */
    const struct shared_batch *shared;  /* where it is, if other devices have it too; NULL: it is this device's */
    int64_t step;                       /* steps done */
    struct held held;                   /* with a batch plan: the largest of all steps; in a trainer that trains, of the
                                         * steps begun */
    struct ledger begun;                /* with a batch plan: what the steps begun send */
    struct tier_traffic moved;          /* likewise: the activations that they write to the slow tier and read */
    int64_t *counted;                   /* [updates] labels that count in the replica's sequences, for each optimizer
                                         * step of this step */
    int64_t labels;                     /* labels that count in the whole batch */
    struct encoders encoders;           /* of what is not text */
    struct routers routers;             /* of a mixture: mixture.h */
    double norm;                        /* of the replica's gradients, before clipping */
    int updated;                        /* optimizer steps taken in this step so far */
    struct loss_scale loss_scale;       /* the same on every device */
    int64_t skipped, skipped_before;    /* steps skipped because a gradient was not finite: all, and before this run */
};

/* Result of one training step; identical on all devices. */
struct step_result {
    double loss;                        /* mean over the labels of the whole batch, with the weights before the step */
    double norm;                        /* global norm of the gradients, before clipping; of several optimizer steps, of
                                         * the last; with replicas that train apart, the root mean square of theirs */
    double side[2],                     /* without a backward pass: the loss on each side of the weights; `loss` is */
        slope;                          /* their mean, slope their difference quotient, and there is no norm */
    double lr;                          /* learning rate of the step */
    double loss_scale;                  /* of the gradients, which still have this factor; the norm does not */
    bool skipped;                       /* a gradient was not finite: no device has taken the step */
    struct lost_sum lost;               /* with exact sums, the first of all devices that does not exist */
    int64_t lost_layer, lost_row;       /* of a mixture, the first router whose logits of a row of the batch are not
                                         * finite: 1 + its layer, and the row; 0: there is none */
};

/** Whether this device has a part in what the trainer trains: not in a section on other devices, nor in a plan with
 *  sections itself, whose trainers are in `section`. */
static inline bool trainer_takes_part(const struct trainer *trainer)
{
    return trainer->plan.sections == NULL && mesh_has(&trainer->plan.mesh, trainer->comm->rank);
}

/** The trainer of a layer: of its section, or the trainer itself.
 *  @param layer  -1: of the embedding; L: of the loss. */
const struct trainer *trainer_of_layer(const struct trainer *, int layer);

/** The trainers of which a device's work consists: of its sections, or the trainer itself.
 *  @param i  from 0 on.  @return NULL after the last. */
struct trainer *trainer_section(struct trainer *, int i);

/** As data_track, also in all sections. */
enum error_code trainer_track(struct trainer *, struct error *);

/** A parameter of the model's list, also one of which this device has no piece. */
struct param_spec trainer_spec(const struct trainer *, int index);

/**
 * Create this device's groups, layouts and lists of actions, without weights, gradients and optimizer state.  All
 * formulas below can be evaluated for this outline; it cannot train.
 * Local.  The plan must have passed plan_check.
 * @param comm  need not be connected if nothing is sent: device, rank, size and contexts suffice.
 * @return OK or ERR_MEMORY; trainer_close works after both.
 */
enum error_code trainer_outline(struct trainer *, const struct plan *plan, struct comm *comm, struct error *);

/**
 * Create a trainer: its outline, initial weights and optimizer state.
 * Collective over all devices.  The plan must have passed plan_check.
 * @param source  must outlive the trainer.
 * @return OK, or the same error on every device, with nothing to close.
 */
enum error_code trainer_open(struct trainer *, const struct plan *, struct comm *, struct batch_source source,
                             struct error *);
void trainer_close(struct trainer *);

/** Read the batch of the coming step, which may decide where its tokens are.  A step does so itself; call it to know
 *  before.  Local. */
void trainer_read_batch(struct trainer *);

/** Call a probe with this device's activations and their gradients as they are computed; NULL: none.  Local. */
void trainer_watch(struct trainer *, const struct probe *);

/** Forget which exact sums did not exist in the passes before: a step, or an iteration of serving, begins.  Local. */
void trainer_begin_sums(struct trainer *);

/** Run every action of the device's list once.  The step's batch must be set.  Collective over the pp and tp groups.
 *  @param[out] loss  the sum over the labels whose loss this device computes. */
enum error_code trainer_pass(struct trainer *, double *loss, struct error *);

/**
 * The first half of a step: forward, backward and reduction.  Afterwards every parameter's g has this device's boxes of
 * the gradient of the mean loss over the whole batch, or over the replica's part of it where replicas train apart.  If
 * projected gradients were reduced, g has R, then zeros (ref/optim/galore.h).  If the schedule steps the optimizer
 * inside the step, all optimizer steps but the last have been taken, and g is the gradient for the last.  Without a
 * backward pass it computes both losses and the slope.  Collective over all devices.
 * @return OK or the same error on every device.
 */
enum error_code trainer_gradients(struct trainer *, struct step_result *, struct error *);

/** The second half: clip, step the weights, zero the gradients.  Collective over all devices.
 *  With a dynamic loss scale, a step whose norm is infinite or NaN is skipped.  The norm is the same on all devices; it
 *  is a sum of squares in double, which finite gradients never make infinite.
 *  @return OK or the same error on every device; ERR_MEMORY if one has exceeded its budget in this step. */
enum error_code trainer_update(struct trainer *, struct step_result *, struct error *);

/** Exactly what this device sends and adds in one step for one kind of traffic, from the model's table, the plan and
 *  the schedule.  For an optimizer that projects gradients: in a step that computes new directions. */
struct account trainer_cost(const struct trainer *, enum traffic_kind);

/** Exactly what this device sends and adds of all kinds in all steps since the trainer was opened.  Skipped steps send
 *  no new weights; projected gradients are smaller.  The counters, and what the calls have entered, must equal it. */
void trainer_predict(const struct trainer *, int64_t steps, struct ledger *);

/** Exactly what this device has read from the slow tier and written to it in these steps, by formula; the tier's
 *  counters must equal it. */
struct tier_traffic trainer_tier_traffic_so_far(const struct trainer *, int64_t steps);

/** The tiers' counters: of the data scheme's tier and of those of the stages. */
struct tier_traffic trainer_tier_traffic_counted(const struct trainer *);

/** The activations that this device writes to the slow tier and reads in a step of the current microbatches. */
struct tier_traffic trainer_activation_moves(const struct trainer *);

/** Exact peak bytes of this device in one tag, by formula, for PARAMETERS, GRADIENTS, OPTIMIZER and ACTIVATIONS; the
 *  arena must show it after a step.  Activations: the most that the device's list of actions holds at once; where data
 *  decide who has which tokens or rows, that of the steps begun; for an outline less than that. */
uint64_t trainer_peak(const struct trainer *, enum arena_tag);

/** A lower bound of this device's peak of all memory, in bytes: what is kept all the time, plus the most that the lists
 *  of actions and passes hold at once.  Buffers of collectives and operations are not included. */
uint64_t trainer_least(const struct trainer *);

#endif
