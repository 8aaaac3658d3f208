/* placement.h -- how many layers each stage gets, when stages are not equally fast. */
#ifndef ORRERY_PIPELINE_PLACEMENT_H
#define ORRERY_PIPELINE_PLACEMENT_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Cut `layers` equal layers over stages in proportion to their speeds, at least one each, so that the slowest stage is
 * as fast as can be: max over stages of layers[i] / speed[i] is the least possible.
 *
 * Source: Holmes's self-adapting partition (F. Yang et al., arXiv:2312.03549) gives floor(alpha * speed / sum * L) and
 * spreads the rest; this is the exact optimum of what that aims at, by giving one layer after another to the stage that
 * would then still be done first.
 * @param speed  [stages], each 1 .. 1e9; the unit is free.
 * @param[out] count  [stages] layers of each stage; the sum is `layers`.  Of equal choices the earlier stage gets the
 *     layer.
 * @return OK; ERR_PLAN: fewer layers than stages, or a speed out of range.
 */
enum error_code layers_by_speed(int layers, int stages, const int64_t *speed, int *count, struct error *err);

#endif
