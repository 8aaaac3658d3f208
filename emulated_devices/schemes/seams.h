/* seams.h -- the schemes that a part of the model calls while it runs: over tp, cp and ep.
 *
 * model/trainer_open.c fills the struct once for a run, and each stage reads the struct (model/stage.c).  No function
 * returns an error code.
 */
#ifndef ORRERY_SEAMS_H
#define ORRERY_SEAMS_H

#include "emulated_devices/schemes/attention/attention.h"
#include "emulated_devices/schemes/experts/experts.h"

struct seams {
    const struct tensor_parallel *tp;   /* how matrices and heads are cut */
    struct context_parallel cp;         /* how tokens of a sequence are cut */
    struct expert_parallel ep;          /* where experts are */
};

/** The seams with tensor parallelism only: whole sequences, all experts on each device.  Pure.
 *  @param tp  the result keeps the pointer; NULL if lists are only linked. */
struct seams seams_alone(const struct tensor_parallel *tp);

#endif
