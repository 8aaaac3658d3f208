/* collectives.h -- checks every algorithm of every collective with numbers whose sums are exact.  jobs/collectives.c
 * calls these functions. */
#ifndef ORRERY_VERIFY_COLLECTIVES_H
#define ORRERY_VERIFY_COLLECTIVES_H

#include "emulated_devices/collectives/collective.h"

/* These are the findings on an algorithm, identical on all members. */
struct algorithm_outcome {
    int calls;                          /* collectives that were run and compared */
    int64_t elements;                   /* compared by == on this member, over all calls */
    const char *refused;                /* NULL, or why the algorithm refuses groups of this size */
    struct error verdict;               /* OK, or ERR_CHECK: the first wrong member, call and element, or wrong cost */
};

/**
 * Call one algorithm with lengths around the group's size and far above it, in two formats, from different roots, with
 * separate in and out and in place; those that add also with the average, an all-to-all also with blocks of unequal
 * lengths.
 *
 * Inputs are small integers that depend only on (member, index): every sum is exact in any order, and every member
 * knows the right answer.  Messages, bytes and additions counted must equal the algorithm's cost function.
 * Collective over the group.
 * @return OK when there is an outcome, with any verdict; ERR_MEMORY, ERR_COMM on every member.
 */
enum error_code verify_algorithm(struct group *, const struct algorithm *, struct algorithm_outcome *, struct error *);

/**
 * Hold what `auto` stands for to what it says: of calls from one number to 30030, none of the algorithms takes less
 * virtual time on the devices' cluster, if all members start together.
 * Collective over a group of all devices, whose clocks begin anew.
 * @param[out] outcome  on rank 0: the calls that were timed, and ERR_CHECK with the first faster algorithm.
 * @return OK; ERR_MEMORY or ERR_COMM on every member.
 */
enum error_code verify_choice(struct group *, enum operation, struct algorithm_outcome *outcome, struct error *);

#endif
