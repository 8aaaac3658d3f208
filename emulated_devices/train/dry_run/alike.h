/* alike.h -- the devices of a plan that do the same, so that one can run for all of them (comm/folding.h).  dry_run.c
 * calls these functions.  No function returns an error code. */
#ifndef ORRERY_ALIKE_H
#define ORRERY_ALIKE_H

#include "emulated_devices/comm/crew.h"
#include "emulated_devices/plan/plan.h"

/**
 * The coarsest folding that the plan's sizes and its cluster allow.  A crew finds out what its messages allow
 * (crew_outcome.inexact): then refine and try again.
 * @param plan  its sections must outlive the folding.
 * @param why   why an axis of several devices is not folded, or not to one; empty: it is.  Of sections: why stages are
 *              not folded, or not into more parts.
 */
struct folding plan_alike(const struct plan *plan, char why[200]);

/** A finer one, after a run with this one was found inexact: the next one, or the first that is no longer known to be
 *  inexact. */
struct folding plan_alike_refined(const struct plan *, const struct folding *, const struct crew_outcome *);

#endif
