/* lost.h -- which exact sum of a step is the first that does not exist, because it went beyond the bits of such sums or
 * had a term that is not finite.
 *
 * model/run/run.c asks after each node; model/trainer.c shares the answer in a step whose loss or norm is not finite.
 */
#ifndef ORRERY_LOST_H
#define ORRERY_LOST_H

#include "emulated_devices/model/stage.h"

struct trainer;
struct step_result;

/** Forget what a step before has lost.  Local. */
void lost_begin(struct stage *);

/** Note that an operation has just lost a sum, if one has, and this device has lost none before in this step.  Local.
 *  @param part  NULL: gradients were added over devices. */
void lost_note(struct stage *, const struct model_part *part, enum list which, const char *name);

/** Name the first lost sum of all devices in the result, where the loss or the norm is not finite; and make the loss no
 *  number where the sum of the losses is beyond the bits that fp64 adds exactly.
 *  Collective over all devices, which have the same loss and norm.  @return OK or ERR_COMM. */
enum error_code lost_share(struct trainer *, double losses, struct step_result *, struct error *);

#endif
