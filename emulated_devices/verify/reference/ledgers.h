/* ledgers.h -- holds what a device has sent to what was predicted.  counts.c and weather/run.c call ledgers_check. */
#ifndef ORRERY_VERIFY_LEDGERS_H
#define ORRERY_VERIFY_LEDGERS_H

#include "emulated_devices/comm/comm.h"

/**
 * Compare for equality, by kind, operation and level, what a device has sent and added with what its calls expected and
 * with what was predicted.  Local.
 * @return OK, or ERR_CHECK naming the device, what differs, and the numbers.
 */
enum error_code ledgers_check(const struct comm *, const struct ledger *predicted, struct error *);

#endif
