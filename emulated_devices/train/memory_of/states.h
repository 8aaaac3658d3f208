/* states.h -- weights, gradients and optimizer states of a replay: what a program keeps, gathers and reduces.  Private
 * to train/memory_of/; replay.c calls.  Errors are those of replayed.h. */
#ifndef ORRERY_MEMORY_STATES_H
#define ORRERY_MEMORY_STATES_H

#include "emulated_devices/train/memory_of/replayed.h"

/* The tensors of one part of the model. */
struct part_state {
    int64_t elements;                   /* of the weights that its passes use, whole */
    int64_t own_elements;               /* of its gradients, this device's part */
    struct replayed *gathered;             /* whole, in the format of use */
    struct replayed *coming;               /* the buffer of an all-gather that was started ahead */
    struct replayed *made;                 /* a list: gradients that backward passes have written */
    struct replayed *sum;                  /* whole, of several microbatches, before they are reduced */
    struct replayed *reduced;              /* what the optimizer reads */
};

struct states {
    struct pieces *pieces;                 /**< Allocations of the replay. */
    const struct trainer *trainer;         /**< Trainer whose memory is replayed. */
    const struct memory_profile *profile;  /**< Profile of the program whose memory is replayed. */
    struct replayed *kept;                 /* a list: weights, masters, buffers of gradients, optimizer states */
    struct replayed *gathering, *reducing; /* the buffers of the last all-gather and of the last reduce-scatter */
    struct replayed *bucket;               /**< Buffer of gradients that are reduced together. */
    int parts;                             /**< Entries of `part`. */
    struct part_state *part;            /* [parts] of the model */
    bool stepped;                       /* the optimizer has its states */
};

enum error_code states_open(struct states *, struct error *);
void states_close(struct states *);

/** The start of a step: gradients of the last one are dropped. */
void states_begin(struct states *);
/** A part's weights are needed, or no longer needed, by a forward or a backward pass. */
void states_acquire(struct states *, int part, bool backward);
void states_release(struct states *, int part, bool backward);
/** A matrix's gradient is written; the part's backward pass ends, of the last microbatch or another; a microbatch's. */
void states_gradient(struct states *, int part, int64_t elements);
void states_part_done(struct states *, int part, bool last);
void states_pass_done(struct states *);
/** The optimizer steps. */
void states_step(struct states *);

#endif
