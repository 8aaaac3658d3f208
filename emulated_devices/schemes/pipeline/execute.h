/* execute.h -- executes one device's list of any schedule.
 *
 * The model calls schedule_execute in every step (model/trainer.c), and schedule_cost for the expected traffic
 * (model/trainer_cost.c).  The schedule must have passed schedule_validate: the executor checks nothing again.
 */
#ifndef ORRERY_EXECUTE_H
#define ORRERY_EXECUTE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/schemes/pipeline/schedule.h"

/* Numbers in the host's memory that travel beside a microbatch's tensor from stage to stage; bytes 0: none do. */
struct stage_note { void *numbers; uint64_t bytes; };

/* The model's functions that the executor calls.  chunk: which of the device's stages; micro: which microbatch. */
struct stage_operations {
    /* FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT or UPDATE. */
    enum error_code (*compute)(void *context, enum action_kind, int chunk, int micro, struct error *);
    /* A stage's input, or the gradient of its output, is received or copied into this tensor.  The stage frees this
     * arena memory.  data NULL: out of memory. */
    struct tensor (*input)(void *context, int chunk, int micro); /**< Place for an input. */
    struct tensor (*output_gradient)(void *context, int chunk, int micro); /**< Place for the gradient of an output. */
    /* A stage's output, or the gradient of its input: arena memory that the executor owns from now on. */
    struct tensor (*take_output)(void *context, int chunk, int micro);     /**< Output that the executor takes over. */
    struct tensor (*take_input_gradient)(void *context, int chunk, int micro); /**< Gradient, taken over. */
    /* The place of a stage's note, which travels beside its output, or beside the gradient of its input.  The next
     * stage receives the note at its own place.  Both are equally long.  NULL: there are no notes. */
    struct stage_note (*note)(void *context, int chunk, int micro, bool gradient); /**< Place of the note. */
    /* The executor calls this function once, before the first action of the list that belongs to the backward pass.
     * After a list without a backward pass, as where microbatches skip a stage, the call comes at the end.  NULL:
     * nothing is called.  In a schedule with all forward passes first, devices may communicate here. */
    enum error_code (*backward_begins)(void *context, struct error *); /**< Called before the backward pass. */
};

/* When an action began and ended, by the device's virtual clock. */
struct action_time { int64_t start, end; };

/**
 * Execute the calling device's list.
 *
 * Collective over the pp group, whose rank is the device's place in the schedule.  Messages are named by microbatch and
 * stage, so they match in any order of sending.  A tensor that is being sent no longer counts as the device's memory.
 * @param[out] times  [actions of this device's list], or NULL.
 * @return OK; ERR_COMM; or the error of compute().  After an error the other devices of the group still wait.
 */
enum error_code schedule_execute(const struct schedule *, struct group *, const struct stage_operations *,
                                 void *context, struct action_time *times, struct error *);

/* The size of a microbatch's activations between stages, and of their gradient; of the notes beside one of them. */
struct stage_sizes {
    uint64_t (*tensor)(const void *context, int micro);                  /* Bytes of a microbatch's activations, and of
                                                                          * their gradient. */
    uint64_t (*note)(const void *context, int micro, bool gradient);     /* NULL: there are no notes */
};

/** Messages and bytes that this device sends for one execution on a pp group. */
struct account schedule_cost(const struct schedule *, const struct group *, const struct stage_sizes *,
                             const void *context);

#endif
