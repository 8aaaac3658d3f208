/* unit.h -- parameters that are gathered, reduced and stepped at once, seen as one row of elements.
 *
 * A unit is a block of the model, or what comes before the blocks or after them; the token embedding is one by itself,
 * since with tied weights two stages of a pipeline hold it, and what they exchange must be cut alike.  Where matrices
 * are tiled, each tile is a unit, and these have what is left; where numbers travel as codes, copies along tp are in
 * units of their own (units.h).
 *
 * The row is what is cut over dp.  Its order is one of two:
 *
 *   flat    the parameters one after another:          a a a a b b b | b b c c c - -     - padding, at the end only
 *   rows    each parameter cut by rows (dimension 0):  a a b b b c c | a a b b - c -     every parameter padded by
 *   itself
 *
 * Whole parameters always lie one after another without padding, so that of a flat unit they are views into the row,
 * and of the other kind a copy.
 */
#ifndef ORRERY_UNIT_H
#define ORRERY_UNIT_H

#include "emulated_devices/collectives/tracking.h"
#include "emulated_devices/schemes/data/shards.h"
#include "emulated_devices/schemes/parameter.h"
#include "ref/numeric/exact_sum.h"

/* Which unit: UNIT_BLOCKS + l is block l, UNIT_BLOCKS + L what comes after the last one. */
enum { UNIT_TOKENS, UNIT_POSITIONS, UNIT_BLOCKS };
enum { PART_UNITS = 4 };                        /* that a pass over a part of the model needs, at most */

static inline int unit_count(const struct model_config *c) { return UNIT_BLOCKS + (int)c->L + 1; }
static inline int unit_of(const struct param_spec *s)
{
    return s->role == ROLE_TOKENS ? UNIT_TOKENS : s->layer < 0 ? UNIT_POSITIONS : UNIT_BLOCKS + s->layer;
}

struct sharing;

struct unit {
    struct sharing *over;               /* the devices that share it (sharing.h) */
    int count;
    struct parameter *parameter;        /* [count] neighbours in the device's list */
    int rows;                           /* parts each parameter is cut into by rows; 0: flat */
    int64_t elements, padded;           /* of all parameters; of the row */
    struct tensor w, g;                 /* whole, one after another; data NULL while they are not here */
    struct tensor older;                /* own_w before the last step, where two versions are kept */
    struct tensor own_w, own_g, master,
        state[OPTIMIZER_MAX_STATES];    /* this device's parts of the row, kept from step to step; master:
                                           where the optimizer steps copies of the weights */
    struct tracking tracking;           /* beside own_g, where that is quantised on its way and this is tracked */
    struct tensor anchor, momentum;     /* of replicas that train apart: what is stepped here as the last outer step
                                         * left it; outer.h */
    struct tensor shard,
        sum; /* own_w and own_g on the device: themselves, or where those lie on the slow tier copies, while they
                                           are needed */
    int64_t copied_w, copied_g;         /* elements of these copies; 0: there are none */
    bool passing_w, passing_g;  /* w is here only while it is used, g while passes add to it; otherwise they are kept */
    bool added;                         /* own_g has something of this step */
    struct exact_sum squares;           /* this device's part of the unit's squared norm, if own_g is not here */
    picoseconds ready;                  /* virtual time at which w has been gathered */
    picoseconds announced, fetched,
        flushed; /* ... own_w will be in the host's memory, and has been copied; own_g has been copied
                                                   back.  announced 0: it has not been asked for */
    int due;                            /* backward passes of this step that have not added to g yet */
    int gatherings, reductions;         /* in a step: how often w is gathered; updates before which a pass adds to g */
    int passes;                         /* in a step: how often g is added to what is kept of it */
    bool waits;                         /* g is in the bucket that is reduced next */
    bool moved;                         /* w is here, and along the direction (data_set_direction) */
    bool foreseen_here, foreseen_shard; /* while the list is gone through: w is here; so is shard */
    bool foreseen_gradient;             /* ... g is here */
};

/** Find places and sizes.  @param shards  what the row is padded for.  @param rows  cut each parameter by rows. */
void unit_lay_out(struct unit *, struct parameter *, int count, const struct shards *shards, bool rows);

/* A stretch of elements contiguous both in the row and in a parameter's piece. */
struct portion { struct parameter *parameter; int64_t piece, row, length; };

/** Call f for each stretch of a part of the row, in order; padding is left out. */
void unit_each_stretch(const struct unit *, struct interval part, void (*f)(void *context, struct portion),
                       void *context);

/** The elements of a parameter's piece that lie in a part of the row: always neighbours. */
struct interval unit_owned(const struct unit *, struct interval part, const struct parameter *);

/** Copy between a part of the row and the whole parameters, one after another; when filling the row, padding becomes 0.
 *  The device may be NULL: then all memory is the host's; else either side may be. */
void unit_to_whole(struct device *, const struct unit *, struct interval part, const void *row, void *whole,
                   enum dtype);
void unit_from_whole(struct device *, const struct unit *, struct interval part, void *row, const void *whole,
                     enum dtype);

/** Copy the elements of one parameter that lie in a part of the row, to or from an array of just them. */
void unit_take(struct device *, const struct unit *, struct interval part, const void *row, const struct parameter *,
               void *owned, enum dtype);
void unit_put(struct device *, const struct unit *, struct interval part, void *row, const struct parameter *,
              const void *owned, enum dtype);

#endif
