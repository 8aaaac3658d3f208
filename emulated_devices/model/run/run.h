/* run.h -- runs the lists of a part (link.h) on one microbatch of a stage.  model/stage.c calls these functions. */
#ifndef ORRERY_RUN_H
#define ORRERY_RUN_H

#include "emulated_devices/model/stage.h"

/** Run the allocations at the start of a list, which need no weights.  Local.  @return OK or ERR_MEMORY. */
enum error_code run_make(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** Run the rest of a list.  The part's weights must have been acquired, or its gradients begun.  Collective over the tp
 *  group.  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_list(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** Free all memory that a microbatch holds for a part. */
void run_drop(struct stage *, struct microbatch *, const struct model_part *);

/** Update the count of memory by one list, without running it. */
void run_held(const struct stage *, const struct microbatch *, const struct model_part *, enum list, struct held *);

#endif
