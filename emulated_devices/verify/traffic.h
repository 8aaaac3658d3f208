/* traffic.h -- whether a device sent what its calls expected, and what was predicted before the run. */
#ifndef ORRERY_VERIFY_TRAFFIC_H
#define ORRERY_VERIFY_TRAFFIC_H

#include "emulated_devices/model/trainer.h"

/**
 * Compare the three ledgers of this device by kind, operation and level, with ==.  Local.
 * @param steps  that the trainer has done since it was opened.
 * @return OK, or ERR_CHECK naming the device, the kind, the operation, the level if totals agree, and the three numbers.
 */
enum error_code traffic_check(const struct trainer *, int64_t steps, struct error *);

#endif
