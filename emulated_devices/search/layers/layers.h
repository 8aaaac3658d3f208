/* layers.h -- what a planner by layers is asked for, and what it gives.
 *
 * A planner by layers is a file of this folder, and a line in search/planners.c.  It reads a table (table.h) and gives
 * the plan that it would choose; what its paper's search does not know of (stages, strategies that change from layer
 * to layer, memory) it does not use, so that a comparison shows what each idea is worth.
 *
 * Callers: the planners, search/planner.h, cli/train/layered.c and verify/cases/planned.c.
 */
#ifndef ORRERY_SEARCH_LAYERS_H
#define ORRERY_SEARCH_LAYERS_H

#include "emulated_devices/search/layers/table.h"

/* A plan that no other beats in both time and memory. */
struct layer_point { picoseconds time; uint64_t memory; };

struct layer_search {
    /* A planner is asked with these. */
    const struct layer_table *table;    /* what layers take */
    uint64_t memory;                    /* of a device; 0: no limit */
    uint64_t seed;                      /* of planners that draw numbers */
    bool own_code;                      /* a planner does without a library that it has (tests) */
    /* A planner sets these. */
    bool found;                         /* a plan that fits, by the table */
    struct layer_plan best;             /* if so */
    struct layer_verdict verdict;       /* what the table says of it */
    int64_t looked;                     /* plans, or parts of plans, that were compared */
    bool thinned;                       /* not all were kept, so that what is promised holds up to that */
    struct layer_point *point;          /* [points] a frontier, fastest first; of planners that make one; owned */
    int points;                         /**< Entries of `point`. */
    int *slot;                          /* [devices] the place in the machine of each device; of planners that place;
                                         * owned */
    picoseconds predicted;              /* a step by the planner's own formula; 0: it takes the table's */
    char note[120];                     /* how the plan was found, where that is not always alike; "": as promised */
    bool unproven;                      /* this time what the planner promises is not known to hold */
};

void layer_search_free(struct layer_search *);

/** Take a plan if it fits, and is faster than the best so far, or as fast with less memory. */
void layer_search_offer(struct layer_search *, const struct layer_plan *);

/** A plan of all layers in one stage with one strategy, or in even stages of n devices: floor(L / p) layers each, and
 *  the remainder in the last.  @return whether stages of so many devices fill all devices and have layers. */
bool layer_plan_evenly(const struct layer_table *, int devices, struct layer_plan *);

/** This type is a function that is called with a legal plan of a table. */
typedef void layer_plan_fn(void *context, const struct layer_plan *, const struct layer_verdict *);

/** Go through all plans of the table.
 *  @param each  is called with every legal plan, also those that do not fit.
 *  @return how many plans there are; `most` + 1 if there are more, and then not all were seen. */
int64_t layer_plans_each(const struct layer_table *, int64_t most, layer_plan_fn *each, void *context);

#endif
