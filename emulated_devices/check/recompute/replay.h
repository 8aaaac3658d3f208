/* replay.h -- the operations of a pass, from the model's table (program.h), each recomputed by itself (single.h).
 *
 * A model that is a table has them all.  An operation of a table (enum op) has an entry in replay.c; without one its
 * results are reported as not recomputed.
 * The program is the one whose dump `orrery check` judges.  report/singles.c calls replay_check with that dump as the
 * source: source.fetch reads a tensor of the program, and source.found takes each verdict.  tests/devices/ call
 * replay_check with sources of their own.
 */
#ifndef ORRERY_REPLAY_H
#define ORRERY_REPLAY_H

#include "emulated_devices/check/recompute/single.h"

/**
 * Recompute every operation of one pass whose result the program has.
 * @return OK, whatever the verdicts; ERR_MEMORY; ERR_PLAN if there is no table for the model, or a table that reads
 *         what no node makes; or the error that source.fetch returned.
 *         After an error source.found has taken some verdicts, and the rest are missing.
 */
enum error_code replay_check(const struct model_config *, struct single_batch, struct rounding, struct single_source,
                             struct error *);

#endif
