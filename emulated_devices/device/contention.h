/* contention.h -- a run once more, on links that devices share. */
#ifndef ORRERY_CONTENTION_H
#define ORRERY_CONTENTION_H

#include "emulated_devices/device/events.h"
#include "ref/error.h"

/**
 * Replay the events of all devices in order of time.
 * @param[in,out] events  [devices] of a run that has ended: every message was received.  Their times become those of
 *                 the replay.
 * @param[out] end [devices] when each device's compute stream was done.
 * @return OK; ERR_MEMORY; ERR_FORMAT: the lists do not fit together.
 */
enum error_code contention_replay(const struct cluster *, struct events *const *events, int devices, picoseconds *end,
                                  struct error *);

#endif
