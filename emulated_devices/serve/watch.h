/* watch.h -- sees each iteration of a replica as it ends: in the engine, and in simulations, so that both can be
 * compared.  engine.c and simulation.c call its function. */
#ifndef ORRERY_SERVING_WATCH_H
#define ORRERY_SERVING_WATCH_H

#include "emulated_devices/serve/scheduler.h"

struct serving_watch {
    void *context;                      /* first argument of the function */
    /* An iteration of a scheduler began and ended at these virtual times, in picoseconds; its sequences do not have its
     * tokens yet.  NULL: nobody watches. */
    void (*iteration)(void *context, int64_t scheduler, const struct iteration *, int64_t began, int64_t ended);
};

/* Calls the function, if there is one. */
static inline void watch_iteration(const struct serving_watch *watch, int64_t scheduler, const struct iteration *now,
                                   int64_t began, int64_t ended)
{
    if (watch->iteration) watch->iteration(watch->context, scheduler, now, began, ended);
}

/** The composition of an iteration as one number: which requests have which positions in it, in which order, and what
 *  moves.  @param before  the number so far: a chain over iterations. */
uint64_t iteration_composition(uint64_t before, const struct iteration *);

#endif
