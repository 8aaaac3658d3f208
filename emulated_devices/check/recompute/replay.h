/* replay.h -- the operations of a pass, from the model's table (program.h), each recomputed by itself (single.h).
 *
 * A model that is a table has them all.  An operation of a table (enum op) has an entry in replay.c; without one its
 * results are reported as not recomputed.
 * report/singles.c calls replay_check for a model that is a table; tests call it with graphs of their own.
 */
#ifndef ORRERY_REPLAY_H
#define ORRERY_REPLAY_H

#include "emulated_devices/check/recompute/single.h"

/**
 * Recompute every operation of one pass whose result the program has.
 * @return OK, whatever the verdicts; ERR_MEMORY; ERR_PLAN if there is no table for the model; errors of fetch.
 */
enum error_code replay_check(const struct model_config *, struct single_batch, struct rounding, struct single_source,
                             struct error *);

#endif
