/* estimate.h -- what a step of a plan takes, about, without planning all of it.
 *
 * One stage of the pipeline is planned, with one and with two layers and one microbatch, on all its devices: what
 * a layer, the loss and the step after them take.  These times are put into the plan's schedule (pipeline/timing.h).
 * So an estimate is made of the same operations, messages and links as the plan.  It does not know what stages do to
 * each other besides passing microbatches on, nor layers that differ.
 *
 * Callers: search.c for each candidate, changes.c for each change.
 */
#ifndef ORRERY_SEARCH_ESTIMATE_H
#define ORRERY_SEARCH_ESTIMATE_H

#include "emulated_devices/device/cluster.h"

struct plan;

/* Stages that were planned before: their times are kept. */
struct estimator { struct stage_times *known; int count, room; uint64_t planned; };

void estimator_close(struct estimator *);

/** The time of a step, in picoseconds.
 *  @param plan  checked.  @return OK; ERR_PLAN if there is no such stage; ERR_MEMORY. */
enum error_code estimate_step(struct estimator *, const struct plan *plan, picoseconds *, struct error *);

#endif
