/* held_tensors.h -- the tensors that a plan's fullest device holds at its peak, by name.
 *
 * A plan's peak is known after its step.  The step runs once more, and at the moment of the peak every block of the
 * device is listed; a block has the name of what was computed when the block was allocated.  cli/train/against.c
 * compares the lists of two plans.
 */
#ifndef ORRERY_RUN_HELD_TENSORS_H
#define ORRERY_RUN_HELD_TENSORS_H

#include "emulated_devices/run/report/plan_report.h"

/* Tensors of one class and name: of some layers and microbatches. */
struct held_tensor {
    enum arena_tag tag;                 /* the class of the tensor */
    char name[80];                      /* "attn.q", "the loss, logits"; "kept between steps" */
    uint64_t bytes;                     /* of all */
    int count;                          /* blocks */
    int layers, micros;                 /* different layers, and microbatches, that the blocks were made for; 0: none */
};

enum { HELD_MOST = 400 };
struct held_tensors { struct held_tensor of[HELD_MOST]; int count; };   /* what has no room is added to the last one */

/** List what a planned step's fullest device holds at its peak; together the bytes are the peak.  Local.
 *  @return OK; ERR_CHECK if they are not; the error of a dry run. */
enum error_code held_tensors_of(struct held_tensors *, const struct planned_step *, struct error *);

#endif
