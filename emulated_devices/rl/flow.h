/* flow.h -- when tasks work and when they wait: samples stream through a queue in virtual time.
 *
 * Answers are drawn on `slots`, one after another; scoring, rewarding and training are one group of devices each.  A
 * task takes rows as soon as they are ready (queue.h).  Training takes an iteration's rows in parts of `part`, and then
 * updates the weights, which arrive where answers are drawn `move` later.  An iteration's answers begin with version
 * max(0, i - staleness) of the weights.  The answers of a long tail hold up the training step; meanwhile the slots draw
 * the next iterations, if staleness allows.
 *
 * The code is pure: events in the order of their times, then of their rows.  report.c runs a flow with the times of a
 * run, bench/rl/ one with drawn lengths.
 */
#ifndef ORRERY_RL_FLOW_H
#define ORRERY_RL_FLOW_H

#include "emulated_devices/rl/queue.h"

struct flow_times {
    int64_t iterations, samples;        /* samples of each iteration */
    int64_t group;                      /* of a prompt, whose rewards are compared; 1: none are */
    const double *draw;                 /* [iterations, samples] seconds that drawing each answer takes */
    double score, reward;               /* of a sample */
    double train, update, move;         /* of a sample; of the optimizer's step; of weights on their way */
    int slots;                          /* answers that are drawn at a time */
    int64_t part;                       /* samples that training takes at a time; an iteration's: nothing streams */
    int staleness;
    bool turns;                         /* the tasks take turns on the same devices: nothing overlaps */
};

enum flow_group { FLOW_DRAW, FLOW_SCORE, FLOW_REWARD, FLOW_TRAIN, FLOW_GROUPS };

struct flow {
    double seconds;                     /* to the last update */
    double idle[FLOW_GROUPS];           /* part of the time in which a group, or a slot on average, waits */
    int most_stale;                     /* versions that were made while an answer was drawn or waited, at most */
};

/** Run a flow.  @return OK; ERR_MEMORY; ERR_INTERNAL if a task has not had a row, or nothing can go on. */
enum error_code flow_run(const struct flow_times *, struct flow *, struct error *);

#endif
