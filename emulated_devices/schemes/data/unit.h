/* unit.h -- parameters that are gathered, reduced and stepped together, as one row of elements.
 *
 * A unit is a block of the model, or the parameters before or after the blocks.  The token embedding is its own unit:
 * with tied weights two stages of a pipeline hold it, and they must cut it in the same way.  With tiled matrices each
 * tile is a unit, and these units have the remaining parameters.  If numbers are sent as codes, copies along tp are in
 * their own units (units.h).
 *
 * The row is cut over dp.  It has one of two orders:
 *
 *   flat    the parameters one after another:          a a a a b b b | b b c c c - -     - padding, at the end only
 *   rows    each parameter cut by rows (dimension 0):  a a b b b c c | a a b b - c -     padding in each parameter
 *
 * Whole parameters are always stored one after another without padding.  For a flat unit they are views into the row,
 * otherwise a copy.  No function returns an error code.  Files of schemes/data/, model/ and verify/reference/ call
 * these functions.
 */
#ifndef ORRERY_UNIT_H
#define ORRERY_UNIT_H

#include "emulated_devices/collectives/tracking.h"
#include "emulated_devices/schemes/data/shards.h"
#include "emulated_devices/schemes/parameter.h"
#include "ref/numeric/exact_sum.h"

/* Numbers of units: UNIT_BLOCKS + l is block l, UNIT_BLOCKS + L has the parameters after the last block. */
enum { UNIT_TOKENS, UNIT_POSITIONS, UNIT_BLOCKS };
enum { PART_UNITS = 12 };                       /* the most units that a pass over a part of the model needs */

struct model_config;

/** The number of units of a model. */
int unit_count(const struct model_config *);

/** The unit of a parameter. */
static inline int unit_of(const struct param_spec *spec)
{
    return spec->role == ROLE_TOKENS ? UNIT_TOKENS : spec->layer < 0 ? UNIT_POSITIONS : UNIT_BLOCKS + spec->layer;
}

struct sharing;

struct unit {
    struct sharing *over;               /* the devices that share it (sharing.h) */
    int count;                          /* parameters of the unit */
    struct parameter *parameter;        /* [count] adjacent in the device's list */
    int rows;                           /* the number of parts into which each parameter is cut by rows; 0: flat */
    bool experts;                       /* it has experts, and nothing else */
    bool frozen;                        /* its parameters do not train: weights alone are kept, and their bits stay */
    bool adapted;                       /* a matrix of it has an adapter: passes read merged copies of the weights */
    int64_t elements, padded;           /* of all parameters; of the row */
    struct tensor w, g;                 /* whole, one after another; data is NULL while they are not on the device */
    struct tensor older;                /* with two versions: own_w before the last step */
    struct tensor own_w, own_g, master, /* this device's parts of the row, kept from step to step; master: if the */
        state[OPTIMIZER_MAX_STATES];    /* optimizer steps copies of the weights */
    struct tracking tracking;           /* of own_g, if gradients are sent as codes and tracked */
    struct tensor low;                  /* of adapters whose w passes: a copy of w, which folding gradients reads */
    struct tensor anchor, momentum;     /* with replicas that train apart: of what this device steps, after the last
                                         * outer step; outer.h */
    struct tensor shard,                /* own_w on the device: itself, or while needed a copy from the slow tier */
        sum;                            /* own_g, likewise */
    int64_t copied_w, copied_g;         /* elements of these copies; 0: there are none */
    bool passing_w, passing_g;          /* w exists only during its use, g while passes add to it; else both are kept */
    bool added;                         /* own_g has values of this step */
    struct exact_sum squares;           /* this device's part of the unit's squared norm, if own_g is on the tier */
    picoseconds ready;                  /* virtual time at which w is gathered */
    bool asked;                         /* own_w is requested from the drive */
    picoseconds announced, fetched,     /* virtual times: own_w is in host memory; is copied; */
        flushed;                        /* own_g is copied back */
    int due;                            /* backward passes of this step that have not yet added to g */
    int gatherings, reductions;         /* in a step: how often w is gathered; updates before which a pass adds to g */
    int passes;                         /* in a step: how often g is added to own_g */
    bool waits;                         /* g is in the bucket that is reduced next */
    bool moved;                         /* w is on the device, moved along the direction (data_set_direction), or merged
                                         * with adapters */
    bool foreseen_gradient;             /* in predictions: g is on the device */
};

/** Set places and sizes.  @param shards  for which the row is padded.  @param rows  cut each parameter by rows. */
void unit_lay_out(struct unit *, struct parameter *, int count, const struct shards *shards, bool rows);

/* A range of elements that is contiguous both in the row and in a parameter's piece. */
struct portion { struct parameter *parameter; int64_t piece, row, length; };

/** Call f for each such range of a part of the row, in order; padding is skipped. */
void unit_each_stretch(const struct unit *, struct interval part, void (*f)(void *context, struct portion),
                       void *context);

/** The elements of a parameter's piece in a part of the row; they are always adjacent. */
struct interval unit_owned(const struct unit *, struct interval part, const struct parameter *);

/** Copy between a part of the row and the whole parameters, one after another; padding of the row is set to 0.
 *  If the device is NULL, all memory must be the host's; otherwise either side may be. */
void unit_to_whole(struct device *, const struct unit *, struct interval part, const void *row, void *whole,
                   enum dtype);
void unit_from_whole(struct device *, const struct unit *, struct interval part, void *row, const void *whole,
                     enum dtype);

/** Copy the elements of one parameter in a part of the row, to or from an array of only these elements. */
void unit_take(struct device *, const struct unit *, struct interval part, const void *row, const struct parameter *,
               void *owned, enum dtype);
void unit_put(struct device *, const struct unit *, struct interval part, void *row, const struct parameter *,
              const void *owned, enum dtype);

#endif
