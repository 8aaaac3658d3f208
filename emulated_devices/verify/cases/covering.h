/* covering.h -- a set of cases that covers every valid pair of values.
 *
 * A case chooses one value in each of several dimensions.  Most mistakes need one value, or two values together.  So
 * each pair of values of two dimensions that is possible in some case is in at least one case.  Value 0 of a dimension
 * is its default.
 *
 * Source   D. Cohen et al., "The AETG system: an approach to testing based on combinatorial design", IEEE Transactions
 *          on Software Engineering 23(7), 1997: greedy, pair by pair.  Here it is deterministic, and some values are
 *          valid only with certain others
 * Called   cases.c calls these functions.
 */
#ifndef ORRERY_COVERING_H
#define ORRERY_COVERING_H

#include "ref/error.h"
#include <stdbool.h>

enum { COVERING_MOST_DIMENSIONS = 27 };

/* A case has one value of each dimension. */
struct choice { int value[COVERING_MOST_DIMENSIONS]; };

struct covering {
    int dimensions;                     /* of a choice, those that do not vary included */
    const int *values;                  /* [dimensions] numbers of values */
    /** Whether a choice is a case.  @return OK; ERR_PLAN with the reason; ERR_USAGE if it is valid but not wanted. */
    enum error_code (*check)(const void *context, const struct choice *, struct error *);
    const void *context;
    bool varies[COVERING_MOST_DIMENSIONS];      /* other dimensions stay at 0 */
    int first;                          /* pairs with this dimension come first */

    /* Private. */
    int total, *before;                 /* values of all dimensions; [dimensions] of all dimensions before this one */
    unsigned char *pair;                /* [total][total] enum pair_state */
    struct choice *home;                /* [total] home of a value: a case with it and mostly defaults */
    unsigned char *has_home;            /* [total] 0: not searched yet */
    int at[4];                          /* the current pair: two dimensions and their values */
    bool rest;                          /* the current pair is among those without the first dimension */
};

/** Allocate the table of pairs.  dimensions, values, check and context must be set.  @return OK or ERR_MEMORY; call
 *  covering_close after both. */
enum error_code covering_open(struct covering *, struct error *);
void covering_close(struct covering *);

/** Start (again) with the pairs of dimensions that vary.  Covered pairs stay covered; pairs that were impossible may be
 *  possible now. */
void covering_begin(struct covering *);

enum covering_result { COVERING_CASE, COVERING_REFUSED, COVERING_DONE };

/* Two values, each with its dimension.  dimension[1] is -1 for a value that is in no case. */
struct value_pair { int dimension[2], value[2]; };

/**
 * The next case, or the next pair that no case can have.
 * @param[out] pair  the pair for which the case was made, or the refused pair.
 * @param[out] why   the reason of the refusal.
 */
enum covering_result covering_next(struct covering *, struct choice *, struct value_pair *pair, struct error *why);

#endif
