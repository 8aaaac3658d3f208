/* streams.h -- which stream sends what, by the number of communication streams that a device has.
 *
 * A communicator of NCCL has a stream: what is on one is sent in the order of the program, and what is on two may be
 * sent together.  How many there are changes times, never numbers or messages.
 *
 * schemes/ ask where to send, collectives/registry.c before each collective, reports and traces for names.  No
 * function here can fail.
 */
#ifndef ORRERY_STREAMS_H
#define ORRERY_STREAMS_H

#include "emulated_devices/device/clock.h"

/* A device sends these beside computing; for the last kind it waits at once. */
enum sending { SENDS_WEIGHTS, SENDS_GRADIENTS, SENDS_SUMS, SENDS_ROWS, SENDS_AND_WAITS, SENDINGS };

/** The stream of this clock that sends it; COMPUTE: what computes also sends. */
enum stream sending_stream(const struct clock *, enum sending);

/** The current stream, which computes, is about to run a collective and to wait for it.
 *  @return whether the collective is in line with others, until sending_done. */
bool sending_in_line(struct clock *);
void sending_done(struct clock *);

/** A stream's or engine's name in traces and messages. */
const char *stream_name(enum stream);

#endif
