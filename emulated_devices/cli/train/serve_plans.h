/* serve_plans.h -- `orrery serve --plans`: tries plans, and prints them.  serve.c calls this function. */
#ifndef ORRERY_CLI_SERVE_PLANS_H
#define ORRERY_CLI_SERVE_PLANS_H

#include "emulated_devices/serve/requests.h"
#include "emulated_devices/serve/scheduler.h"

struct plan;

/* Words that a search of plans has beside those of the run. */
struct plan_words { const char *goal, *profile, *gpu, *write_profile; };

/** Search, and print the plans, what was fitted, and what the engine says of the best.  On rank 0, before any device.
 *  @param plan    of the run: its mesh says how many devices there are.
 *  @param limits  blocks 0: as many as there is memory for.
 *  @return as plans_search; errors of reading or writing tables. */
enum error_code serve_plans(const struct plan *plan, const struct requests *, const struct serving_limits *limits,
                            const struct plan_words *, struct error *);

#endif
