/* measure.h -- tables of a described cluster: this program's own kernels and collectives, timed on its virtual clock.
 * search.c calls this function. */
#ifndef ORRERY_SERVING_MEASURE_H
#define ORRERY_SERVING_MEASURE_H

#include "emulated_devices/serve/plans/cost.h"

/**
 * Add the times that a search of plans asks for: products of the model's matrices, cut into each of these numbers of
 * devices, attention of its heads, and collectives.  Lists that have rows stay as they are.
 * @param costs    with model, cluster, format and profile.
 * @param devices  [count] ascending.  @param most  tokens of an iteration.  @param longest  of a sequence.
 * @return OK, or ERR_MEMORY.
 */
enum error_code profile_measure(const struct plan_costs *costs, const int *devices, int count, int64_t most,
                                int64_t longest, struct error *);

#endif
