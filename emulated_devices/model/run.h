/* run.h -- running the lists of a part (link.h) on one microbatch of a stage. */
#ifndef ORRERY_RUN_H
#define ORRERY_RUN_H

#include "emulated_devices/model/stage.h"

/** Make the memory that a list begins with, which needs no weights.  Local.  @return OK or ERR_MEMORY. */
enum error_code run_make(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** Run what follows.  The part's weights have been acquired, or its gradients begun.  Collective over the tp group.
 *  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_list(struct stage *, struct microbatch *, const struct model_part *, enum list, struct error *);

/** Give back whatever a microbatch holds of a part. */
void run_drop(struct stage *, struct microbatch *, const struct model_part *);

/** Follow the activations of a list: what is held at its end, and the most on the way. */
void run_held(const struct stage *, const struct microbatch *, const struct model_part *, enum list, struct held *);

#endif
