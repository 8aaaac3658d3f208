/* pipette.h -- where the devices of a pipeline are in the machine, by the rates between them.
 *
 * A unit is the devices of a copy of a stage, on neighbouring places.  Unit s * copies + r has stage s of copy r.
 *
 * Callers: pipette.c chooses with these functions, and tests/devices/test_planners.c holds them to all placements.
 */
#ifndef ORRERY_SEARCH_PIPETTE_H
#define ORRERY_SEARCH_PIPETTE_H

#include "emulated_devices/search/layers/table.h"

struct placing {
    const struct layer_table *table;    /* has the rates */
    int stages, copies, unit;           /* unit: devices */
    uint64_t hop, ring;                 /* bytes: of a microbatch from a unit to the next stage's; that a unit sends to
                                         * copies in a step */
    int rounds;                         /* how often a step waits for all hops */
};

static inline int placing_units(const struct placing *placing) { return placing->stages * placing->copies; }

/** Seconds of a step that messages take: rounds x the slowest copy's hops, there and back, and the slowest stage's
 *  ring.  @param place  [units] where each unit is, in units. */
double placing_time(const struct placing *, const int place[]);

/** Improve a placement by simulated annealing.  @param[in,out] place  where it begins; the best.
 *  @return the best one's seconds. */
double placing_anneal(const struct placing *, uint64_t seed, int place[]);

/** Pipette's time of a step: rounds of hops and passes of all stages, the filling pipeline, and the ring at the end.
 *  @param pass  seconds of a microbatch in the longest stage.  @param hops  of all hops, there and back. */
double pipette_latency(int stages, int micros, double pass, double hops, double ring);

/** AMP's, which has all hops once. */
double amp_latency(int stages, int micros, double pass, double hops, double ring);

#endif
