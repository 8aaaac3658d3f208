/* run.h -- runs the lists of a part (link.h) on one microbatch of a stage.  model/stage.c calls these functions. */
#ifndef ORRERY_RUN_H
#define ORRERY_RUN_H

#include "emulated_devices/model/stage.h"

/** Run the allocations at the start of a list, which need no weights.  Local.  @return OK or ERR_MEMORY. */
enum error_code run_make(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** Run the rest of a list.  The part's weights must have been acquired, or its gradients begun.  Collective over the tp
 *  group.  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_list(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** If experts' weights come to a part from other devices: begin to bring them, beside what is computed before they are
 *  needed.  The part's weights must have been acquired.  Collective over the ep group.
 *  @param back  for the first list of the backward pass that runs experts; else for the forward pass.
 *  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_bring(struct stage *, struct microbatch *, const struct model_part *, bool back, struct error *);

/** Before the backward pass of a part, or of what comes before it, is run: bring as run_bring, if the part is a layer
 *  of this stage whose weights are always here. */
enum error_code run_bring_early(struct stage *, struct microbatch *, const struct model_part *, struct error *);

/** The part's gradients must be whole: wait for sums of experts' gradients, and add them.  Local. */
void run_finish(struct stage *, struct microbatch *, const struct model_part *);

/** Free all memory that a microbatch holds for a part. */
void run_drop(struct stage *, struct microbatch *, const struct model_part *);

/** Update the count of memory by one list, without running it. */
void run_held(const struct stage *, const struct microbatch *, const struct model_part *, enum list, struct held *);

#endif
