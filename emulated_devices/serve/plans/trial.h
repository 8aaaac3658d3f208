/* trial.h -- the engine answers requests on a mesh without numbers, in this process, and its iterations are kept.
 * search.c calls these functions. */
#ifndef ORRERY_SERVING_TRIAL_H
#define ORRERY_SERVING_TRIAL_H

#include "emulated_devices/serve/plans/cost.h"
#include "emulated_devices/serve/requests.h"

struct plan;

/* An iteration of the engine. */
struct trial_step {
    int64_t takes;                      /* picoseconds */
    uint64_t composition;               /* of the iterations of its replica up to this one */
    double tables;                      /* seconds by tables, not calibrated */
};

/* The iterations of a replica, in their order. */
struct trial_steps { struct trial_step *step; int64_t count, room; };

struct trial {
    struct plan_costs *costs;           /* what the tables say of each iteration */
    struct serving_plan plan;           /* one group in both cells */
    struct trial_steps *of;             /* [plan.replicas] owned */
    double latency, seconds;            /* mean of a request; of all */
    bool lost;                          /* no memory for some */
};

/** Run the engine.  @param base  a plan with the model, of any mesh.  @return OK, for trial_free; ERR_MEMORY; ERR_PLAN
 *  if the engine does not serve it. */
enum error_code trial_run(struct trial *, const struct plan *base, const struct requests *,
                          const struct serving_limits *, struct error *);
void trial_free(struct trial *);

#endif
