/* timing.h -- the time of a schedule: start and end of every action, from the times of F, I and W of each stage.
 *
 * Times are integer picoseconds.  A send starts when its tensor is ready, without delaying its device; the message
 * arrives `communication` later; a receive waits for it.  Links carry any number of messages at once.  The published
 * bubble rates (P. Qi et al., arXiv:2401.10241, tables 5 and 6) use this model.  The time is a lower bound: contention
 * is not modelled.
 *
 * search/estimate.c times a plan with this clock.  cli/show/schedule.c, cli/bench/schedules.c and
 * draw/timeline.c print a timing.
 */
#ifndef ORRERY_PIPELINE_TIMING_H
#define ORRERY_PIPELINE_TIMING_H

#include "emulated_devices/schemes/pipeline/schedule.h"

struct schedule_times {
    const int64_t *forward, *backward_input, *backward_weight;      /* [stages]; B takes the sum of the last two */
    int64_t communication;                                          /* from the send's start to the message's arrival */
    int64_t update;                                                 /* optimizer step inside the schedule, per chunk */
};

struct timing {
    int devices;                        /* of the schedule */
    int64_t makespan;                   /* from 0 to the last end */
    int64_t span;                       /* longest time of a device from its first start to its last end */
    double bubble;                      /* 1 - (busiest device's work) / span: the published bubble rate */
    double idle;                        /* 1 - (busiest device's work) / makespan: with the pipeline's fill and drain */
    int64_t *busy;                      /* [devices] */
    int64_t **start, **end;             /* [devices][count[device]]; a receive ends when its message arrives */
};

/** Equal times for all stages, in the caller's memory: room [3 * stages]. */
struct schedule_times uniform_times(int stages, int64_t forward, int64_t backward_input, int64_t backward_weight,
                                    int64_t communication, int64_t *room);

/* The times of every stage. */
struct even_times { int64_t forward, backward_input, backward_weight, communication, update; };

/** Time a schedule that schedule_validate accepts.  Times must be 0 .. 1e11, so that sums fit in 64 bits.
 *  @return OK or ERR_MEMORY; ERR_PLAN if the schedule does not finish. */
enum error_code schedule_time(struct timing *, const struct schedule *, const struct schedule_times *, struct error *);
enum error_code schedule_time_evenly(struct timing *, const struct schedule *, struct even_times, struct error *);
void timing_free(struct timing *);

/** Allocate the times of a schedule's actions, all 0, to fill with times from a run.  @return OK or ERR_MEMORY. */
enum error_code timing_make(struct timing *, const struct schedule *, struct error *);

/** Compute work, span, makespan and bubble from start and end; shifts times so that the first computation starts at
 *  0. */
void timing_summarise(struct timing *, const struct schedule *);

#endif
