/* serve_plans.h -- `orrery serve --plans`: tries plans, and prints them.  serve.c calls this function. */
#ifndef ORRERY_CLI_SERVE_PLANS_H
#define ORRERY_CLI_SERVE_PLANS_H

#include "emulated_devices/serve/engine.h"

/* Words that a search of plans has beside those of the run. */
struct plan_words { const char *goal, *profile, *gpu, *write_profile; };

/** Search, and print the plans, what was fitted, and what the engine says of the best.  On rank 0, before any device.
 *  @param job  of the run, with its requests and limits; the mesh says how many devices there are.
 *  @param own_blocks  the limits' blocks were asked for.
 *  @return as plans_search; errors of reading or writing tables. */
enum error_code serve_plans(const struct serving_job *job, const struct plan_words *, bool own_blocks, struct error *);

#endif
