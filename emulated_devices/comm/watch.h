/* watch.h -- watches the buffers of messages from their start to their message_wait; private to this folder.
 *
 * A device executes in program order, and every carrier copies what is sent.  So a program that forgets a wait computes
 * the right numbers here, and on a machine that sends while it computes it does not.  The watch reports it:
 *
 *   a send      its buffer is received into, is freed, or holds other bytes at message_wait than at message_send
 *   a receive   its buffer is read, is written, is received into again, or is freed; it is poison meanwhile (flight.h)
 *   both        the message was not waited for when its group is closed, a step ends, or the device disconnects
 *
 * Bytes of a send are compared by a hash of all of them.  Of other uses the device tells (device_used).  The first
 * violation is kept: comm_agree reports it, on every device.  So no device stops while others wait for its messages.
 *
 * A device that follows what is in flight (flight.h) has a watch, too.  Messages of CONTROL exchanges are watched like
 * all others, but what they receive is not poison.  comm.c, exchange.c and group.c call these functions.
 */
#ifndef ORRERY_COMM_WATCH_H
#define ORRERY_COMM_WATCH_H

#include "emulated_devices/comm/comm.h"

/** Begin to watch, if the device's flight is open.  Local.  @return OK, or ERR_COMM: there is no memory. */
enum error_code watch_open(struct comm *, struct error *);
void watch_close(struct comm *);

/** Follow what is in flight as ORRERY_STREAMS says, else as the device does, and watch its messages.  Local.
 *  @return OK; ERR_USAGE for wrong words in the environment; ERR_COMM without memory. */
enum error_code streams_open(struct comm *, struct error *);

/** End both.  Local. */
void streams_close(struct comm *);

/* For the following functions a device without a watch is allowed: then they do nothing.  All are local. */

/** A message has been started in a slot. */
void watch_begin(struct comm *, int slot, const struct exchange *, int peer, const void *data, uint64_t bytes,
                 bool sends);

/** The slot's message is about to be waited for: judge its buffer, and watch it no longer. */
void watch_end(struct comm *, int slot);

/** No message may be under way any more.  Those that are, are watched no longer.
 *  @param group  its messages alone; NULL: all.  @param when  "at the end of step 3", for the report. */
void watch_nothing_left(struct comm *, const struct group *group, const char *when);

/** An error is known: what is in flight is watched no longer, because memory is freed and messages are left. */
void watch_forgive(struct comm *);

/** Take the first violation, if there is one.  @return local, or ERR_CHECK if local is OK and a rule was violated. */
enum error_code watch_verdict(struct comm *, enum error_code local, struct error *);

#endif
