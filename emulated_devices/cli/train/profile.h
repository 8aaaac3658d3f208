/* profile.h -- a run's first step on every device, in short: for the JSON report, which `orrery report` draws. */
#ifndef ORRERY_TRAIN_PROFILE_H
#define ORRERY_TRAIN_PROFILE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/trace.h"
#include <cjson/cJSON.h>

/**
 * Bring every device's trace to rank 0, in short.  Virtual times in picoseconds.
 * Collective over all devices.
 * @param trace         this device's.
 * @param[out] profile  on rank 0, for cJSON_Delete: { "flop_rate", "memory_rate", "devices": [ { lists of lists:
 *                      "operations": name, count, ps, flops, bytes; "timeline": start, end, pass, microbatch;
 *                      "memory": ps, bytes of each kind; "sent": device, messages, bytes } ] }; NULL elsewhere.
 * @return OK, or the same error on every device: ERR_MEMORY, ERR_COMM.
 */
enum error_code profile_gather(struct comm *, const struct trace *trace, cJSON **profile, struct error *);

#endif
