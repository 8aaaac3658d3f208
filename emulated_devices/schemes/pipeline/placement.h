/* placement.h -- the number of layers of each stage, when stages are not equally fast.
 *
 * plan/check.c calls layers_by_speed, whose result becomes the plan's first_layer table; bench/recovery.c calls
 * layers_by_time.
 */
#ifndef ORRERY_PIPELINE_PLACEMENT_H
#define ORRERY_PIPELINE_PLACEMENT_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Distribute `layers` equal layers over stages in proportion to their speeds, at least one each.  Minimises the maximum
 * over stages of layers[i] / speed[i].
 *
 * Source: Holmes's self-adapting partition (F. Yang et al., arXiv:2312.03549) gives floor(alpha * speed / sum * L) and
 * spreads the rest.  This is the exact optimum: each layer goes to the stage that would then still finish first.
 * @param speed  [stages], each 1 .. 1e9, in any unit.
 * @param[out] count  [stages] layers of each stage; the sum is `layers`.  In a tie the earlier stage gets the layer.
 * @return OK; ERR_PLAN: fewer layers than stages, or a speed out of range.
 */
enum error_code layers_by_speed(int layers, int stages, const int64_t *speed, int *count, struct error *err);

/**
 * Cut a row of layers of any times into runs, one for each stage, at least one layer each.  Minimises the maximum over
 * stages of the run's time / speed, by the program over the first i layers on the first k stages:
 *
 *     F[i, k] = min over j < i of max(F[j, k - 1], (time of layers j .. i - 1) / speed[k])
 *
 * Source: Z. Wu et al., "ElasWave", 2025, arXiv:2510.00606: layers are moved so after a device is lost.
 * @param time   [layers], each 1 .. 1e6, in any unit.
 * @param speed  [stages], each 1 .. 1e6, in any unit.
 * @param[out] count  [stages] layers of each stage.  In a tie later stages get more layers.
 * @return OK; ERR_PLAN: fewer layers than stages, or a number out of range; ERR_MEMORY.
 */
enum error_code layers_by_time(const int64_t *time, int layers, int stages, const int64_t *speed, int *count,
                               struct error *err);

#endif
