/* cases.h -- small runs of reinforcement learning beside the one-device run.  cli/verify.c, bench/rl/ and tests call.
 */
#ifndef ORRERY_RL_CASES_H
#define ORRERY_RL_CASES_H

#include "emulated_devices/rl/loop.h"
#include "emulated_devices/verify/jobs/job.h"

/** A job of two iterations of 8 answers.  @param size  of the mesh that trains.  @return OK; ERR_PLAN. */
enum error_code rl_small_job(struct rl_job *, const int size[AXIS_COUNT], const char *rule, enum dtype, enum exact_rule,
                             struct error *);

/** The family `rl` of `orrery verify`: every rule, and the meshes, stalenesses and places of tasks that the devices of
 *  the job allow.  Collective.  @return OK, ERR_MEMORY or ERR_COMM: a case that does not hold is counted. */
enum error_code rl_verify(struct job *, struct error *);

#endif
