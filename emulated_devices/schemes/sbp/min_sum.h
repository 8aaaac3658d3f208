/* min_sum.h -- the least sum of terms, each of a few variables that have a few values: variable elimination.
 *
 * Variable after variable is eliminated: the terms that have it become one term of their other variables, the least
 * over its values, which is remembered.  When none is left the least sum is known, and the values that make it are read
 * back.
 * Exact.  Time and memory go with the largest term that arises, not with the number of combinations; the next variable
 * is always one whose elimination makes the smallest term.
 *
 * Source  R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence 113 (1999),
 *         doi:10.1016/S0004-3702(99)00059-4
 *
 * assign.c makes a term for each operation and solves the sum; tests compare the least sum with all combinations tried.
 */
#ifndef ORRERY_SBP_MIN_SUM_H
#define ORRERY_SBP_MIN_SUM_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { MIN_SUM_VARIABLES = 64, MIN_SUM_VALUES = 48, MIN_SUM_WIDTH = 32, MIN_SUM_TERMS = 160 };

/* The cost of an impossible value; sums with it stay at least this. */
#define MIN_SUM_NEVER (INT64_MAX / 256)

struct min_sum_term {
    int width, of[MIN_SUM_WIDTH];       /* its variables, all different */
    int64_t *cost;                      /* [values of the first, .., of the last] */
};

struct min_sum {
    int variables, terms;                                   /* numbered from 0; entries of `term` */
    int values[MIN_SUM_VARIABLES];                          /* how many each variable has */
    uint8_t value[MIN_SUM_VARIABLES][MIN_SUM_VALUES];       /* their numbers before min_sum_narrow */
    struct min_sum_term term[MIN_SUM_TERMS];                /* summands */
};

/** Begin with variables of so many values, 1 to MIN_SUM_VALUES, and no terms. */
void min_sum_open(struct min_sum *, int variables, const int values[]);
void min_sum_close(struct min_sum *);

/** Add a term, all of whose costs are 0.  @param of  [width] variables; a repeated one counts once.
 *  @return the term, whose costs can be set; NULL without memory or room. */
struct min_sum_term *min_sum_add(struct min_sum *, int width, const int of[]);

/** Where the cost of values of a term's variables stands. */
int64_t min_sum_at(const struct min_sum *, const struct min_sum_term *, const int value[]);

/**
 * Leave out values until no term that arises is larger than `most`: of each variable those for which, whatever the
 * others are, the terms sum up to most.
 * @return whether values were left out, so that the least sum may be missed.
 */
bool min_sum_narrow(struct min_sum *, int64_t most);

/**
 * The least sum.  The terms are consumed.
 * @param[out] value  [variables] the values that make it, by their numbers before min_sum_narrow.
 * @return OK, with *least >= MIN_SUM_NEVER if nothing can be; ERR_MEMORY.
 */
enum error_code min_sum_solve(struct min_sum *, int value[], int64_t *least, struct error *);

#endif
