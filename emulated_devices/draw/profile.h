/* profile.h -- a run's first step on every device, in short: for the JSON report, which `orrery report` draws.
 * run/session.c calls these functions. */
#ifndef ORRERY_DRAW_PROFILE_H
#define ORRERY_DRAW_PROFILE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/trace.h"
#include <cjson/cJSON.h>

/**
 * What this device's trace has so far, in short: call it when the first step has ended, before the trace goes on.
 * @param devices  number of devices of the run.
 * @return a JSON object, for free(): "whole", false if the trace or a list had no room for all; and lists of lists,
 *         with virtual times in picoseconds: "operations": name, count, ps, flops, bytes; "timeline": start, end, pass,
 *         microbatch; "memory": ps, bytes of each kind; "sent": device, messages, bytes.  NULL: no memory.
 */
char *profile_describe(const struct trace *, int devices);

/**
 * Bring what every device has described to rank 0.  Collective over all devices.
 * @param text          this device's, of profile_describe.
 * @param[out] profile  on rank 0, for cJSON_Delete: { "flop_rate", "memory_rate", "steps": 1, "devices": [ the objects
 *                      ] }; NULL elsewhere.
 * @return OK, or the same error on every device: ERR_MEMORY, ERR_COMM.
 */
enum error_code profile_gather(struct comm *, char *text, cJSON **profile, struct error *);

#endif
