/* rl_claims.h -- what papers of reinforcement learning claim, beside what is computed here, as rows of a table.
 *
 * flow_claims.c has times, in a simulation of tasks; loss_claims.c sums over devices, and a small run.  cli/bench/rl.c
 * and tests call rl_claims_add.
 */
#ifndef ORRERY_RL_CLAIMS_H
#define ORRERY_RL_CLAIMS_H

#include "emulated_devices/bench/serving/claims.h"

extern serving_claims_fn rl_flow_claims, rl_memory_claims, rl_loss_claims, rl_mismatch_claims;

/** Rows of all papers.  @return OK, or the first failure. */
enum error_code rl_claims_add(const struct serving_claims *, struct error *);

#endif
