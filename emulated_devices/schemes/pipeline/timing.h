/* timing.h -- how long a schedule takes: the duration of every action, from the times of a stage's parts.
 *
 * Integer picoseconds.  A send starts when its tensor is ready and holds nothing up; its message is there
 * `communication` later; a receive waits for it; links carry any number of messages at once.  This is the model behind
 * the published bubble rates (P. Qi et al., arXiv:2401.10241, tables 5 and 6), and an upper bound on speed: links that
 * fill up only add to it.
 */
#ifndef ORRERY_PIPELINE_TIMING_H
#define ORRERY_PIPELINE_TIMING_H

#include "emulated_devices/schemes/pipeline/schedule.h"

struct schedule_times {
    const int64_t *forward, *backward_input, *backward_weight;      /* [stages]; a whole backward (B) is the sum of the
                                                                     * two */
    int64_t communication;                                          /* from the send's start to the message's arrival */
    int64_t update;                                               /* an optimizer step inside the schedule, per chunk */
};

struct timing {
    int devices;
    int64_t makespan;                   /* from 0 to the last end */
    int64_t span;                       /* longest time of a device from its first start to its last end */
    double bubble;                      /* 1 - (busiest device's work) / span: the published bubble rate */
    int64_t *busy;                      /* [devices] */
    int64_t **start, **end;             /* [devices][count[device]]; a receive ends when its message is there */
};

/** Times that are the same for all stages, in memory of the caller: `room` holds 3 * stages. */
struct schedule_times uniform_times(int stages, int64_t forward, int64_t backward_input, int64_t backward_weight,
                                    int64_t communication, int64_t *room);

/** Time a schedule that schedule_validate accepts.  Times are 0 .. 1e11 each, or sums might not fit in 64 bits.
 *  @return OK or ERR_MEMORY; ERR_PLAN if it does not come to its end. */
enum error_code schedule_time(struct timing *, const struct schedule *, const struct schedule_times *, struct error *);
void timing_free(struct timing *);

/** Room for the times of a schedule's actions, all 0, for times that come from a run.  @return OK or ERR_MEMORY. */
enum error_code timing_make(struct timing *, const struct schedule *, struct error *);

/** What follows from start and end: work, span, makespan and bubble; the earliest computation starts at 0. */
void timing_summarise(struct timing *, const struct schedule *);

#endif
