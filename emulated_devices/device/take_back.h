/* take_back.h -- what a clock was charged took less time: its operations were done beside each other after all.
 * serve/engine_nano.c calls.  No function returns an error code. */
#ifndef ORRERY_TAKE_BACK_H
#define ORRERY_TAKE_BACK_H

#include "emulated_devices/device/clock.h"

/** The clock takes time back: work of the current stream, with its messages, has taken less than it was charged.  Now
 *  is so much earlier, but not before the host has started the work.  What other streams and ports have done has ended,
 *  too.  No message may be on its way.
 *  @param earlier  at least 0. */
void clock_take_back(struct clock *, picoseconds earlier);

#endif
