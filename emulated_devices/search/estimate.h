/* estimate.h -- what a step of a plan takes, about, without planning all of it.
 *
 * One stage of the pipeline is planned, with one and with two layers and one microbatch, on all its devices: what
 * a layer, the loss and the step after them take.  These times are put into the plan's schedule (pipeline/timing.h).
 * So an estimate is made of the same operations, messages and links as the plan.  It does not know what stages do to
 * each other besides passing microbatches on, nor layers that differ.
 *
 * More than ESTIMATE_COPIES copies of the model are not planned: what a ring of copies takes grows with each copy by
 * the same time, so the times of half as many and of ESTIMATE_COPIES say the rest.  Where more than ESTIMATE_LIVES
 * devices of a stage do different things, there is no estimate.
 *
 * Callers: search.c for each candidate, changes.c for each change.
 */
#ifndef ORRERY_SEARCH_ESTIMATE_H
#define ORRERY_SEARCH_ESTIMATE_H

#include "emulated_devices/device/cluster.h"

struct plan;
struct crew_stop;

/* Stages that were planned before: their times are kept. */
struct estimator {
    struct stage_times *known;          /* [count] */
    int count, room;
    uint64_t planned;                   /* stages */
    double worked;                      /* what that took, as struct estimate counts it */
    const struct crew_stop *stop;       /* when estimating shall end; NULL: it shall not */
};

void estimator_close(struct estimator *);

/** The result is the work of listing the parameters of a plan's device, as struct estimate counts work: of a large
 *  mixture more than most of its estimates.  Pure. */
double estimate_listing(const struct plan *);

enum { ESTIMATE_COPIES = 128, ESTIMATE_LIVES = 256 };

/* The time of a step, and how much planning the step would take: operations and messages of all devices that would
 * run.  INT64_MAX and infinite: there is no estimate, also after an error. */
struct estimate { picoseconds time; double work; };

/** Estimate a step.
 *  @param plan  checked.  @return OK; ERR_PLAN if there is no such stage; ERR_STOPPED;
 *  ERR_MEMORY. */
enum error_code estimate_step(struct estimator *, const struct plan *plan, struct estimate *, struct error *);

#endif
