/* collectives.h -- every algorithm of every collective, on numbers that come out exactly. */
#ifndef ORRERY_VERIFY_COLLECTIVES_H
#define ORRERY_VERIFY_COLLECTIVES_H

#include "emulated_devices/collectives/collective.h"

/* What was found, the same on every member. */
struct algorithm_outcome {
    int calls;
    int64_t elements;                   /* compared by == on this member, over all calls */
    const char *refused;                /* NULL, or why the algorithm takes no group of this size */
    struct error verdict;               /* OK, or ERR_CHECK: the first member, call and element that is wrong, or cost
                                         * that was not met */
};

/**
 * Call one algorithm with lengths round the group's size and far above it, in two formats, from different roots, with
 * in and out apart and in place.
 *
 * Inputs are small integers that depend only on (member, index): every sum is exact in any order, and every member
 * knows the right answer.  Messages, bytes and additions counted must equal the algorithm's cost function.
 * Collective over the group.
 * @return OK when there is an outcome, whatever its verdict; ERR_MEMORY, ERR_COMM on every member.
 */
enum error_code verify_algorithm(struct group *, const struct algorithm *, struct algorithm_outcome *, struct error *);

#endif
