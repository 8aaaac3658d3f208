/* simulation.h -- requests are answered without devices: schedulers plan iterations, and the caller says how long each
 * takes.
 *
 * A simulation has the loop of engine.c, the same scheduler and the same deal of requests, so with the times of a run
 * each of its iterations has the tokens of that run's iteration.  Schedulers may go together: then an iteration of
 * all of them is one step, as of replicas of attention that share a feed-forward layer.  Answers have the lengths that
 * were asked for: requests with stop tokens are not for a simulation.
 *
 * Source  the loop over iterations: Y. Lin et al., "APEX: an extensible and dynamism-aware simulator for automated
 *         parallel execution in LLM serving", arXiv:2411.17651.
 *
 * The code is pure.  plans/search.c and tests call simulation_run.
 */
#ifndef ORRERY_SERVING_SIMULATION_H
#define ORRERY_SERVING_SIMULATION_H

#include "emulated_devices/serve/requests.h"
#include "emulated_devices/serve/scheduler.h"
#include "emulated_devices/serve/watch.h"

struct simulation {
    const struct requests *requests;    /* by arrival */
    int64_t replicas, together;         /* replicas; schedulers of each, whose iterations are one step */
    struct serving_limits limits;       /* of each scheduler */
    /* The time of a step in picoseconds.  part: [together] iterations; NULL: that scheduler has no work. */
    int64_t (*takes)(void *context, int64_t replica, const struct iteration *const *part);
    void *context;                      /* its first argument */
    struct serving_watch watch;         /* sees each iteration, with the number of its scheduler */
};

struct simulated_serving {
    int64_t *first, *last;              /* [requests] when each request's first and last tokens were there, in
                                         * picoseconds */
    struct serving_counts *counts;      /* [replicas together] of each scheduler */
    int64_t end, busy;                  /* when the last token was there; time of all steps, over all replicas */
    int64_t steps;                      /* over all replicas */
};

/** Answer all requests.
 *  @return OK, for simulated_serving_free; ERR_MEMORY; ERR_USAGE: a request has stop tokens, or the cache
 *  has no room for it; ERR_INTERNAL of a scheduler's counts. */
enum error_code simulation_run(const struct simulation *, struct simulated_serving *, struct error *);
void simulated_serving_free(struct simulated_serving *);

#endif
