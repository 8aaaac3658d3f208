/* report.h -- what a run of reinforcement learning says: a line for each iteration with the curve of rewards, and at
 * its end what was compared and moved, and how staleness changes the time that devices wait.  cli/train/rl.c calls. */
#ifndef ORRERY_RL_REPORT_H
#define ORRERY_RL_REPORT_H

#include "emulated_devices/rl/loop.h"

struct rl_report {
    const struct rl_job *job;           /* the caller's */
    int64_t every;                      /* iterations between lines */
    double began;                       /* by the clock of the wall, in seconds */
};

void rl_report_open(struct rl_report *, const struct rl_job *);

/** Say what is about to be done.  On rank 0.  @return OK. */
enum error_code rl_report_begin(struct rl_report *, struct error *);

/** An iteration has ended: struct rl_listener. */
void rl_report_step(void *report, int64_t iteration, const struct rl_step *);

/** Print what came of it, and add it to the document of --json.  @return OK; ERR_CHECK of a difference; ERR_MEMORY. */
enum error_code rl_report_end(struct rl_report *, const struct rl_record *, struct error *);

#endif
