/* summed.h -- how operations are recomputed that read a sum whose parts ranks have (summed.c).
 *
 * Serial.  walk.c reads such inputs as reading.sum says, and runs a pass that lacks only an exact sum with sums_run.
 */
#ifndef ORRERY_SUMMED_H
#define ORRERY_SUMMED_H

#include "emulated_devices/check/recompute/parts.h"

/** Run a pass that lacks nothing but the exact sum of parts (reading.sum has what it has read).
 *  @return its value with bounds for both orders of a program; SINGLE_LACKING if rounding explains too much, or if an
 *          activation's operation is in parts itself. */
struct single_value sums_run(struct single *, const struct single_node *, single_pass *);

/** Run a pass that reads the sum, a part of it, or a probe, as it is said.  @return its value, not yet stored. */
struct single_value sums_take(struct single *, const struct single_node *, single_pass *, struct single_sum_reading);

/** Move a sum by what rounding its additions may do, with the signs of probe reading.sum.number.
 *  @param x  [rows,cols] the sum; of a gradient the moves alone are left. */
void sums_probe(const struct single *, struct tensor x, struct single_sizes);

#endif
