/* contention.h -- a run once more, in an order of time that all devices share.
 *
 * What one device's clock cannot know, because it depends on messages of others:
 *
 *   shared links      messages of several devices are on them at once (network.h)
 *   contention        work of the compute stream takes compute_percent of its time while a message is on the ports of
 *                     its device, from the arrival of its first byte to that of its last
 *   no progress       while the compute stream works, nobody looks after the device's messages: what waits for its
 *                     receiver moves only while neither device works, and other streams send, receive and wait only
 *                     while theirs does not.  Eager messages have been handed to the network, and move.  Latencies
 *                     pass, engines copy, and what another stream computes goes on.
 *
 * run/plan.c, search/search.c and tests call contention_replay after a run whose events were kept.
 */
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
