/* trainer_parts.h -- what the files of the trainer share; private to them.  The files model/trainer*.c and
 * model/mixture.c call these functions.  Errors: ERR_MEMORY, ERR_COMM, and the error of a device whose plan
 * differs. */
#ifndef ORRERY_TRAINER_PARTS_H
#define ORRERY_TRAINER_PARTS_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/plan/sections.h"

/* The numbers of a result: the loss, and the squared norm in a form whose sums are exact. */
enum { RESULT_NUMBERS = 1 + EXACT_LIMBS };

static inline bool forward_only(const struct trainer *trainer) { return trainer->plan.optimizer->forward_only; }
static inline bool draws(const struct trainer *trainer) { return optimizer_draws(trainer->plan.optimizer); }
static inline bool infers(const struct trainer *trainer) { return trainer->plan.optimizer->infers; }

/* The places that sum a unit's gradients: all parameters of a unit are held by the same places. */
static inline int holders_of(const struct unit *unit)
{
    return unit->count > 0 && !unit->frozen ? unit->parameter[0].holders : 1;
}

static inline uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Say which of this step's optimizer steps a microbatch belongs to. */
static inline int batch_of(const struct trainer *trainer, int micro) { return micro / trainer->schedule.update_every; }

/* The labels that count in the replica's sequences of this step. */
int64_t trainer_replica_labels(const struct trainer *);

/* The activations that the device's list of actions holds. */
struct held trainer_activations(const struct trainer *);

/* Keep the largest so far of what is held. */
void trainer_note_held(struct trainer *);

/* For a plan that changes, set the microbatches of a step, and note what they hold. */
enum error_code trainer_cut_step(struct trainer *, int64_t step, struct error *);

/* Devices along cp must have made the same plans of where tokens are, or they would wait for messages that nobody
 * sends.  e: whether this device has made its own.  All devices call it. */
enum error_code trainer_agree_on_plans(struct trainer *, enum error_code e, struct error *);

/* A trainer's outline.  whole: for a section, the schedule whose list of one place it computes; NULL: the plan's. */
enum error_code trainer_outline_part(struct trainer *, const struct plan *, struct comm *, const struct schedule *whole,
                                     int place, struct error *);

/* Run one pass of a microbatch through a stage of this device. */
enum error_code trainer_compute(void *trainer, enum action_kind, int chunk, int micro, struct error *);

/* Reduce the gradients of this device's microbatches to those of the whole batch. */
enum error_code trainer_reduce(struct trainer *, struct error *);

/* Step the weights, with all gradients multiplied by a scale. */
enum error_code trainer_step(struct trainer *, double gradient_scale, struct error *);

/* Name the first exact sum that any device has lost in this step, where the loss or the norm, which they share, is not
 * finite.  losses: the sum over all tokens, which must fit, too.  All devices call it. */
enum error_code trainer_share_lost(struct trainer *, double losses, struct step_result *, struct error *);

/* Read the step's batch and hand each stage its tokens.  Every device computes the whole batch. */
enum error_code trainer_take_batch(struct trainer *, struct error *);

/* If the plan changes from step to step: set the sizes of this step, and add what it sends.  All devices call it, also
 * for a section in which they have no part. */
enum error_code trainer_take_step(struct trainer *, struct error *);

/* Hand each stage its tokens of the batch that has been read. */
enum error_code trainer_hand_batch(struct trainer *, struct error *);

/* Find the clips of a batch that has been read, mark their tokens, and decide who encodes which. */
enum error_code trainer_take_clips(struct trainer *, struct error *);

/* Add what this step sends to what the steps begun send, by formula. */
void trainer_note_begun(struct trainer *);

/* Sum the gradients of parameters that several places of the pipeline hold; all places call it. */
enum error_code trainer_reduce_shared(struct trainer *, struct error *);

#endif
