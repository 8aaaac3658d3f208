/* covering.h -- cases that between them have every pair of values that can be had together.
 *
 * A case chooses one value in each of several dimensions.  Most mistakes need one value, or two that meet: so each pair
 * of values, of two dimensions, that some case can have is in at least one case.  Value 0 of a dimension is the usual
 * one.
 *
 * Source   D. Cohen et al., "The AETG system: an approach to testing based on combinatorial design", IEEE Transactions
 *          on Software Engineering 23(7), 1997: greedy, from pair to pair.  Deterministic here, and with values that
 *          only go with others
 */
#ifndef ORRERY_COVERING_H
#define ORRERY_COVERING_H

#include "ref/error.h"
#include <stdbool.h>

enum { COVERING_MOST_DIMENSIONS = 24 };

/* A case: one value of each dimension. */
struct choice { int value[COVERING_MOST_DIMENSIONS]; };

struct covering {
    int dimensions;
    const int *values;                  /* [dimensions] how many each has */
    /** Whether a choice is a case.  @return OK; ERR_PLAN with the reason; ERR_USAGE for one that is of no interest. */
    enum error_code (*check)(const void *context, const struct choice *, struct error *);
    const void *context;
    bool varies[COVERING_MOST_DIMENSIONS];      /* others stay at 0 */
    int first;                          /* pairs with this dimension come first */

    /* Inside. */
    int total, *before;                 /* values of all dimensions; of those before each */
    unsigned char *pair;                /* [total][total] enum pair_state */
    struct choice *home;                /* [total] a case with this value and little else */
    unsigned char *has_home;            /* [total] 0: not looked for yet */
    int at[4];                          /* the pair that is looked at: two dimensions and their values; */
    bool rest;                          /* ... among those without the first dimension */
};

/** Room for all pairs.  dimensions, values, check and context are set.  @return OK or ERR_MEMORY;
 * covering_close either way. */
enum error_code covering_open(struct covering *, struct error *);
void covering_close(struct covering *);

/** Look at all pairs (again), in dimensions that vary.  Those that are covered stay covered;
 * what could not be had may be possible now. */
void covering_begin(struct covering *);

enum covering_result { COVERING_CASE, COVERING_REFUSED, COVERING_DONE };

/* Two values, each a dimension and its value.  dimension[1] is -1 of a value that goes with nothing. */
struct value_pair { int dimension[2], value[2]; };

/**
 * The next case, or the next pair that no case has.
 * @param[out] pair  what it was made for, or what is refused.
 * @param[out] why   why it is.
 */
enum covering_result covering_next(struct covering *, struct choice *, struct value_pair *pair, struct error *why);

#endif
