/* rest.h -- what is left of gradients without the few directions in which rounding moves them by more than themselves.
 *
 * Serial.  A norm divides a head's query by its size.  A query that is nearly zero is a rounding, and its gradient is
 * divided by a rounding: one token then has most of all gradients before it, in a direction that nobody knows.  All
 * else is as well known as ever.  Runs with disturbed roundings show these directions, of all gradients of a pass
 * together: what one token does to one of them says what it does to the others.  Other runs measure what rounding does
 * to the rest, which is at right angles to the directions.
 * report/passes.c asks for the gradients that it cannot judge as a whole.
 */
#ifndef ORRERY_REST_H
#define ORRERY_REST_H

#include "emulated_devices/check/recompute/own_pass.h"

/* Runs that show directions, and runs that measure the rest. */
enum { REST_SHOWN = 20, REST_MEASURED = 16, REST_RUNS = REST_SHOWN + REST_MEASURED };

/* One of the gradients: what our model computes, and ACTUAL's. */
struct rest_part { const double *ours, *have; int64_t count; struct own_rest *out; };

/**
 * Find the rests of some gradients of a pass.
 * @param part   [parts]; their `out` is set.  Its truth is for free(); NULL: rounding moves the rest by as much as it
 *               would move if ACTUAL had zeros, or that is less than a quarter of ours.
 * @param apart  [REST_RUNS][numbers of all parts] how far each run is from ours, one part behind the other; afterwards
 *               they have other numbers.
 * @return OK or ERR_MEMORY with nothing to free.
 */
enum error_code rest_find(const struct rest_part *part, int parts, double *const apart[], struct error *);

/* This says which results are asked for. */
struct rest_wanted { bool (*is)(const void *context, const struct own_result *); const void *context; };

/**
 * Find the rest of some results of a pass that was run.  Results with more than 2^18 numbers in all are left out.
 * @param twin  the disturbance of the runs; their tokens go to the experts of the pass.
 * @return as replay_following.
 */
enum error_code rest_measure(struct own_pass *, enum dtype, struct perturbation twin, struct rest_wanted,
                             struct error *);

#endif
