/* counts.h -- checks that a device has sent, moved and held what was predicted, for `orrery train` and `orrery
 * verify`.
 *
 * Callers: run/reports.c, verify/cases/case.c, tests.
 */
#ifndef ORRERY_VERIFY_COUNTS_H
#define ORRERY_VERIFY_COUNTS_H

#include "emulated_devices/model/trainer.h"

/**
 * Compare for equality, by kind, operation and level, the three ledgers of this device: what it has sent and added,
 * what its calls expected, and what was predicted before the run; and the slow tier's reads and writes with their
 * formulas.  Local.
 * @param steps  done since the trainer was opened.
 * @return OK, or ERR_CHECK naming the device, what differs, and the numbers.
 */
enum error_code traffic_check(const struct trainer *, int64_t steps, struct error *);

/**
 * Compare this device's memory peaks for equality with their formulas and with the prediction before the start; check
 * that no activations are left.  Local.
 * @param steps  as above; 0: there are no peaks to compare.
 * @return OK; ERR_CHECK naming the device, the kind of memory and both numbers; ERR_MEMORY.
 */
enum error_code memory_check(const struct trainer *, int64_t steps, struct error *);

#endif
