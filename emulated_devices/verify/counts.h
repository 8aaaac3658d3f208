/* counts.h -- whether a device has sent, moved and held what was predicted:
 * `orrery train` and `orrery verify` ask the same. */
#ifndef ORRERY_VERIFY_COUNTS_H
#define ORRERY_VERIFY_COUNTS_H

#include "emulated_devices/model/trainer.h"

/**
 * Compare with ==, by kind, operation and level, the three ledgers of this device: what it has sent and added, what its
 * calls expected, and what was predicted before the run; then what it has read from and written to the slow tier with
 * the formulas.  Local.
 * @param steps  that the trainer has done since it was opened.
 * @return OK, or ERR_CHECK naming the device, what differs, and the numbers.
 */
enum error_code traffic_check(const struct trainer *, int64_t steps, struct error *);

/**
 * Compare this device's peaks of memory with == with their formulas, and with what was predicted before the start; no
 * activations are left.  Local.
 * @param steps  as above; before the first there are no peaks to compare.
 * @return OK; ERR_CHECK naming the device, the kind of memory and both numbers; ERR_MEMORY.
 */
enum error_code memory_check(const struct trainer *, int64_t steps, struct error *);

#endif
